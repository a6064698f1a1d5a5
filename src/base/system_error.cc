#include "src/base/system_error.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

namespace spillway {
namespace {

// Empty for what is no limit.
std::string_view LimitAdvice(int error) {
  switch (error) {
    case EMFILE:
      return "raise the limit on open files (ulimit -n)";
    case ENFILE:
      return "the system's limit on open files is reached; raise it (sysctl fs.file-max)";
    case ENOMEM:
      return "raise the limit on address space (ulimit -v) or close other programs";
    case EAGAIN:
      return "raise the limits on threads (ulimit -u) and address space (ulimit -v)";
    default:
      return {};
  }
}

}  // namespace

void ThrowSystemError(int error, std::string_view what, ErrorCode otherwise,
                      std::string_view advice) {
  const std::string_view limit = LimitAdvice(error);
  throw Error(
      limit.empty() ? otherwise : ErrorCode::kSystemLimit,
      fmt::format("{}: {}; {}", what, std::strerror(error), limit.empty() ? advice : limit));
}

std::string_view RoomAdvice(int error) {
  if (error == ENOSPC || error == EDQUOT) return "free some space";
  return error == EFBIG ? "raise the limit on file sizes (ulimit -f)" : "";
}

bool IsAddressSpaceLimited() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace spillway
