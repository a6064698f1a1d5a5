#include "src/requests/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/base/part_file.h"
#include "src/base/system_error.h"

namespace spillway {
namespace {

constexpr std::size_t kCopyBytes = 256 << 10;

std::string NameOf(const std::filesystem::path& path) {
  return path == "-" ? "standard input" : Printable(path.string());
}

std::optional<struct stat> StatOf(const std::filesystem::path& path, int standard_fd) {
  struct stat status {};
  const int result = path == "-" ? ::fstat(standard_fd, &status) : ::stat(path.c_str(), &status);
  return result == 0 ? std::optional(status) : std::nullopt;
}

// Closed by the kernel with the last descriptor; never has a name where the filesystem knows
// O_TMPFILE.
Descriptor NamelessFile(const std::filesystem::path& folder) {
  Descriptor file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid() || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  std::string name = (folder / "spillway-input-XXXXXX").string();
  file = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (file.valid()) ::unlink(name.c_str());
  return file;
}

// A character device that has lines is a terminal or /dev/null; /dev/zero has no end.
bool IsEndless(const struct stat& status, const Descriptor& file) {
  return S_ISCHR(status.st_mode) && status.st_rdev != makedev(1, 3) && ::isatty(file.get()) == 0;
}

}  // namespace

Descriptor OpenInput(const std::filesystem::path& path, std::string_view flag) {
  Descriptor file = path == "-" ? Descriptor(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3))
                                : OpenOrWait(path.c_str(), O_RDONLY);
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0) {
    ThrowSystemError(errno, fmt::format("{}: cannot be opened", NameOf(path)), ErrorCode::kInput,
                     fmt::format("check {}", flag));
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: is a folder; {} takes one file", NameOf(path), flag));
  }
  if (S_ISBLK(status.st_mode) || IsEndless(status, file)) {
    throw Error(ErrorCode::kInput,
                fmt::format("{}: is a device; {} takes a file or a pipe", NameOf(path), flag));
  }
  return file;
}

bool SameFile(const std::filesystem::path& input, const std::filesystem::path& output) {
  const auto read = StatOf(input, STDIN_FILENO);
  // A terminal or /dev/null on both sides is no clash.
  if (!read || !S_ISREG(read->st_mode)) return false;
  const auto same = [&](const std::filesystem::path& path) {
    const auto written = StatOf(path, STDOUT_FILENO);
    return written && written->st_dev == read->st_dev && written->st_ino == read->st_ino;
  };
  return same(output) || (output != "-" && same(PartPathOf(output)));
}

StagedInput::StagedInput(Descriptor file, int64_t num_bytes)
    : file_(std::move(file)), num_bytes_(num_bytes) {}

std::filesystem::path StagedInput::path() const {
  return fmt::format("/proc/self/fd/{}", file_.get());
}

bool NeedsStaging(const std::filesystem::path& path) {
  const auto status = StatOf(path, STDIN_FILENO);
  return path == "-" || (status && (S_ISFIFO(status->st_mode) || S_ISCHR(status->st_mode)));
}

StagedInput StageInput(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const Descriptor from = OpenInput(path);
  Descriptor to = NamelessFile(folder);
  const std::string folder_name = Printable(folder.string());
  if (!to.valid()) {
    ThrowSystemError(errno, fmt::format("{}: cannot hold a copy of the input", folder_name),
                     ErrorCode::kPath, "set --offload-dir or TMPDIR");
  }
  std::vector<char> buffer(kCopyBytes);
  int64_t num_bytes = 0;
  while (const std::size_t got = ReadSome(from, buffer.data(), buffer.size(), NameOf(path))) {
    WriteAll(to, {buffer.data(), got}, folder.string() + " (copy of the input)");
    num_bytes += static_cast<int64_t>(got);
  }
  return {std::move(to), num_bytes};
}

}  // namespace spillway
