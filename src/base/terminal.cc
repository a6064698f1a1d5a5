#include "src/base/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "spillway/error.h"

namespace spillway {

namespace {

std::atomic<int> lost_output_error = 0;

// fmt::print would throw. Text that stays in the buffer after a failure is lost.
void WriteRaw(std::FILE* stream, std::string_view text) noexcept {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  const bool flushed = std::fflush(stream) == 0;
  if ((!written || !flushed) && stream == stdout && errno != EPIPE)
    lost_output_error = errno == 0 ? EIO : errno;
}

}  // namespace

void PrintTo(std::FILE* stream, std::string_view text) noexcept {
  if (stream != nullptr) WriteRaw(stream, PrintableLines(text));
}

void RedrawLine(std::FILE* stream, std::string_view text) noexcept {
  WriteRaw(stream, fmt::format("\r{}\x1b[K", PrintableLines(text)));
}

int LostOutputError() noexcept { return lost_output_error; }

void PrintWarning(std::string_view text) noexcept {
  PrintTo(stderr, fmt::format("spillway: warning: {}\n", text));  // whole, or not at all
}

void FillStandardDescriptors() noexcept {
  // Ascending order: open takes the lowest free number.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace spillway
