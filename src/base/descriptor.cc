#include "src/base/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

void WaitFor(const Descriptor& file, short events) {
  pollfd wait{file.get(), events, 0};
  ::poll(&wait, 1, 1000);
}

[[noreturn]] void ThrowWriteError(int error, const std::string& name, const char* what) {
  const std::string reason = std::strerror(error);
  if (const std::string_view room = RoomAdvice(error); !room.empty()) {
    throw Error(ErrorCode::kDiskSpace, fmt::format("{}: {}: {}; {} or write elsewhere",
                                                   Printable(name), what, reason, room));
  }
  const char* advice = error == EPIPE ? "the reader of the output went away" : "check the disk";
  ThrowSystemError(error, fmt::format("{}: {}", Printable(name), what), ErrorCode::kIo, advice);
}

}  // namespace

Descriptor OpenOrWait(const char* path, int flags) {
  while (true) {
    Descriptor file(::open(path, flags | O_CLOEXEC));
    if (file.valid() || errno != EINTR) return file;
    ThrowIfNothingMayBegin();
  }
}

std::size_t ReadSome(const Descriptor& file, char* into, std::size_t size,
                     const std::string& name) {
  while (true) {
    ThrowIfStopRequested();  // a scan of a long file and a wait for a pipe end here
    const ssize_t got = ::read(file.get(), into, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN) {
      WaitFor(file, POLLIN);
    } else if (errno == EBADF) {  // what main puts in place of a closed standard input
      throw Error(
          ErrorCode::kInput,
          fmt::format("{}: is closed; redirect it or give another --input", Printable(name)));
    } else if (errno != EINTR) {
      ThrowSystemError(errno, fmt::format("{}: cannot be read", Printable(name)), ErrorCode::kIo,
                       "check the disk or copy the file elsewhere");
    }
  }
}

std::optional<std::string> ReadToEnd(const Descriptor& file, std::size_t max_bytes,
                                     const std::string& name) {
  constexpr std::size_t kStepBytes = 256 << 10;
  std::string text;
  std::size_t size = 0;
  while (size <= max_bytes) {
    text.resize(size + kStepBytes);
    const std::size_t got = ReadSome(file, text.data() + size, kStepBytes, name);
    size += got;
    if (got > 0) continue;
    text.resize(size);
    return text;
  }
  return std::nullopt;
}

void WriteAll(const Descriptor& file, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      WaitFor(file, POLLOUT);
    } else if (errno != EINTR) {
      ThrowWriteError(errno, name, "cannot be written");
    }
  }
}

void Sync(const Descriptor& file, const std::string& name) {
  while (::fsync(file.get()) != 0) {
    if (errno == EINVAL || errno == EROFS) return;
    if (errno != EINTR) ThrowWriteError(errno, name, "cannot be synced");
  }
}

}  // namespace spillway
