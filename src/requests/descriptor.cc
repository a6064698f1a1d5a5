#include "src/requests/descriptor.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "spillway/error.h"

namespace spillway {
namespace {

void WaitFor(const Descriptor& file, short events) {
  pollfd wait{file.get(), events, 0};
  ::poll(&wait, 1, 1000);
}

[[noreturn]] void ThrowWriteError(int error, const std::string& name, const char* what) {
  const std::string reason = std::strerror(error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    throw Error(ErrorCode::kDiskSpace, fmt::format("{}: {}: {}; free some space or write elsewhere",
                                                   Printable(name), what, reason));
  }
  const char* advice = error == EPIPE ? "the reader of the output went away" : "check the disk";
  throw Error(ErrorCode::kIo, fmt::format("{}: {}: {}; {}", Printable(name), what, reason, advice));
}

}  // namespace

std::size_t ReadSome(const Descriptor& file, char* into, std::size_t size,
                     const std::string& name) {
  while (true) {
    const ssize_t got = ::read(file.get(), into, size);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN) {
      WaitFor(file, POLLIN);
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kIo,
                  fmt::format("{}: cannot be read: {}; check the disk or copy the file elsewhere",
                              Printable(name), std::strerror(errno)));
    }
  }
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
