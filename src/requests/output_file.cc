#include "src/requests/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "spillway/error.h"
#include "src/system_error.h"

namespace spillway {
namespace {

bool IsStandardOutput(const std::filesystem::path& path) {
  return path == "-" || path == "/dev/stdout";
}

// Opened as they are: nothing could be renamed onto them.
bool IsStream(const struct stat& status) {
  return S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode);
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
  Descriptor stream(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (!stream.valid())
    ThrowSystemError(errno, fmt::format("{}: cannot be written", Printable(path.string())),
                     ErrorCode::kPath, "give --output a writable place");
  return stream;
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path, bool overwrite)
    : path_(path),
      name_(path.filename().string()),
      part_name_(name_ + ".part"),
      overwrite_(overwrite) {
  file_ = OpenStream(path);
  if (file_.valid()) return;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  folder_ = Descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.valid()) ThrowPathError(folder.string());
  if (name_.empty() || name_ == "." || name_ == "..") {
    throw Error(ErrorCode::kPath, fmt::format("{}: is no file name; --output takes a file",
                                              Printable(path.string())));
  }
  struct stat status {};
  if (::fstatat(folder_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISREG(status.st_mode)) {
      throw Error(ErrorCode::kPath, fmt::format("{}: is {}; give --output the path of a file",
                                                Printable(path.string()),
                                                S_ISDIR(status.st_mode)   ? "a folder"
                                                : S_ISLNK(status.st_mode) ? "a symbolic link"
                                                                          : "no regular file"));
    }
    if (!overwrite) {
      throw Error(ErrorCode::kOutputExists,
                  fmt::format("{}: exists; give --overwrite or another --output",
                              Printable(path.string())));
    }
  } else if (errno != ENOENT) {
    ThrowPathError(path.string());
  }
  RemoveStalePart();
  OpenPart();
}

OutputFile::~OutputFile() {
  if (in_place() || committed_ || !file_.valid() || num_bytes_ > 0) return;
  ::unlinkat(folder_.get(), part_name_.c_str(), 0);
}

void OutputFile::ThrowPathError(const std::string& name) const {
  ThrowSystemError(errno, fmt::format("{}: cannot be written", Printable(name)), ErrorCode::kPath,
                   "give --output a writable place");
}

void OutputFile::RemoveStalePart() {
  struct stat status {};
  if (::fstatat(folder_.get(), part_name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  const std::string name = Printable(part_path().string());
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is no regular file but would be written; remove it", name));
  }
  const Descriptor part(
      ::openat(folder_.get(), part_name_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (part.valid() && ::flock(part.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Error(ErrorCode::kRunInUse,
                fmt::format("{}: another run is writing it; wait or give another --output", name));
  }
  if (status.st_size > 0 && !overwrite_) {
    throw Error(
        ErrorCode::kOutputExists,
        fmt::format(
            "{}: holds the finished lines of an interrupted run; move it away or give --overwrite",
            name));
  }
  if (::unlinkat(folder_.get(), part_name_.c_str(), 0) != 0) ThrowPathError(part_path().string());
}

void OutputFile::OpenPart() {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  Descriptor file(::openat(folder_.get(), part_name_.c_str(), kFlags, 0644));
  if (!file.valid()) ThrowPathError(part_path().string());
  // Without locks (some network filesystems) two runs on one output are only caught by O_EXCL.
  ::flock(file.get(), LOCK_EX | LOCK_NB);
  file_ = std::move(file);
}

void OutputFile::Write(std::string_view lines) {
  SPILLWAY_CHECK(!failed_);
  const std::string name = in_place() ? path_.string() : part_path().string();
  try {
    WriteAll(file_, lines, IsStandardOutput(path_) ? "standard output" : name);
  } catch (const Error&) {
    failed_ = true;
    // Best effort: the write's own error is the one to report.
    if (!in_place() && ::ftruncate(file_.get(), num_bytes_) == 0)
      ::lseek(file_.get(), num_bytes_, SEEK_SET);
    throw;
  }
  num_bytes_ += static_cast<int64_t>(lines.size());
}

void OutputFile::Sync() {
  if (in_place()) return;
  SPILLWAY_CHECK(!failed_);
  failed_ = true;
  spillway::Sync(file_, part_path().string());
  failed_ = false;
}

void OutputFile::Commit() {
  SPILLWAY_CHECK(!committed_);
  committed_ = true;
  if (in_place()) return;
  Sync();
  int renamed = ::renameat2(folder_.get(), part_name_.c_str(), folder_.get(), name_.c_str(),
                            overwrite_ ? 0 : RENAME_NOREPLACE);
  if (renamed != 0 && errno == EINVAL) {  // a filesystem without the flag
    renamed = ::renameat(folder_.get(), part_name_.c_str(), folder_.get(), name_.c_str());
  }
  if (renamed != 0) {
    const bool exists = errno == EEXIST;
    throw Error(
        exists ? ErrorCode::kOutputExists : ErrorCode::kIo,
        fmt::format("{}: cannot be put in place: {}; the lines are in {}",
                    Printable(path_.string()), std::strerror(errno), Printable(part_name_)));
  }
  spillway::Sync(folder_, path_.string());
}

std::filesystem::path OutputFile::part_path() const {
  return in_place() ? std::filesystem::path() : std::filesystem::path(path_.string() + ".part");
}

}  // namespace spillway
