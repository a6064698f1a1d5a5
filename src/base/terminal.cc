#include "src/base/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace spillway {

void PrintTo(std::FILE* stream, std::string_view text) noexcept {
  if (stream == nullptr) return;
  // fmt::print would throw. Text that stays in the buffer after a failure is lost, and may be.
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stream));
  static_cast<void>(std::fflush(stream));
}

void PrintWarning(std::string_view text) noexcept {
  PrintTo(stderr, "spillway: warning: ");
  PrintTo(stderr, text);
  PrintTo(stderr, "\n");
}

void FillStandardDescriptors() noexcept {
  // Ascending order: open takes the lowest free number.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) == -1)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

}  // namespace spillway
