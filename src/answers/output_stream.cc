#include "src/answers/output_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "spillway/error.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

// Opened as they are: nothing could be renamed onto them.
bool IsStream(const struct stat& status) {
  return S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode);
}

}  // namespace

bool IsStandardOutput(const std::filesystem::path& path) {
  return path == "-" || path == "/dev/stdout";
}

Descriptor OpenStream(const std::filesystem::path& path) {
  if (IsStandardOutput(path)) {
    const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
    if (flags == -1 || (flags & O_ACCMODE) == O_RDONLY) {
      throw Error(ErrorCode::kIo, "standard output is closed; redirect it or give --output a file");
    }
    Descriptor copy(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    // F_DUPFD says EINVAL where the limit is below its argument.
    if (!copy.valid())
      ThrowSystemError(errno == EINVAL ? EMFILE : errno, "standard output", ErrorCode::kIo,
                       "redirect it or give --output a file");
    return copy;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !IsStream(status)) return {};
  Descriptor stream = OpenOrWait(path.c_str(), O_WRONLY | O_NOCTTY);
  if (!stream.valid())
    ThrowSystemError(errno, fmt::format("{}: cannot be written", Printable(path.string())),
                     ErrorCode::kPath, "give --output a writable place");
  return stream;
}

}  // namespace spillway
