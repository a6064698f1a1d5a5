#include "src/memory/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {

HostArena::HostArena(int64_t bytes) {
  if (bytes == 0) return;
  void* base = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    const std::string what = fmt::format("cannot reserve {} bytes of memory", bytes);
    constexpr std::string_view kAdvice = "give a smaller --cpu-memory";
    // Without that limit it is the machine's memory that was promised to others already.
    if (error == ENOMEM && !IsAddressSpaceLimited())
      throw Error(ErrorCode::kCpuMemory,
                  fmt::format("{}: {}; {}", what, std::strerror(error), kAdvice));
    ThrowSystemError(error, what, ErrorCode::kCpuMemory, kAdvice);
  }
  Set(static_cast<std::byte*>(base), bytes);
  // Advice only: without huge pages the run is slower, not wrong.
  static_cast<void>(::madvise(base, static_cast<std::size_t>(bytes), MADV_HUGEPAGE));
}

HostArena::~HostArena() {
  if (bytes() > 0) ::munmap(base(), static_cast<std::size_t>(bytes()));
}

int64_t HostArena::ResidentBytes() const {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  constexpr int64_t kPagesAtOnce = 1 << 16;
  std::vector<unsigned char> state(kPagesAtOnce);
  int64_t pages = 0;
  for (int64_t at = 0; at < bytes(); at += kPagesAtOnce * page) {
    const int64_t size = std::min(kPagesAtOnce * page, bytes() - at);
    if (::mincore(base() + at, static_cast<std::size_t>(size), state.data()) != 0) continue;
    pages += std::count_if(state.begin(), state.begin() + (size + page - 1) / page,
                           [](unsigned char in) { return (in & 1) != 0; });
  }
  return std::min(bytes(), pages * page);
}

}  // namespace spillway
