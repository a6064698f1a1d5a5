#include "src/checkpoint/model_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "spillway/error.h"

namespace spillway {
namespace {

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

}  // namespace

FileIdentity FileIdentity::Of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified_ns = Nanoseconds(status.st_mtim)};
}

ModelFile::ModelFile(Descriptor fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {
  const struct stat status = Status();
  if (!S_ISREG(status.st_mode)) {
    throw Error(
        ErrorCode::kModelMissing,
        fmt::format("{}: not a regular file; put the model's file there", Printable(name_)));
  }
  identity_ = FileIdentity::Of(status);
}

struct stat ModelFile::Status() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) == 0) return status;
  throw Error(ErrorCode::kIo,
              fmt::format("{}: {}; check the disk", Printable(name_), std::strerror(errno)));
}

FileStamp ModelFile::Stamp() const {
  const struct stat status = Status();
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified_ns = Nanoseconds(status.st_mtim),
          .changed_ns = Nanoseconds(status.st_ctim)};
}

void ModelFile::ThrowChanged() const {
  throw Error(ErrorCode::kCorrupt, fmt::format("{}: the file changed while it was in use; leave "
                                               "model files alone during a run, then run "
                                               "again",
                                               Printable(name_)));
}

std::size_t ModelFile::ReadSome(int64_t offset, std::span<std::byte> out) const {
  bool retried = false;
  while (true) {
    const ssize_t count = ::pread(fd_.get(), out.data(), out.size(), offset);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EINTR) continue;
    // One more try: a lost network packet or a remapped sector often comes back at once.
    if (errno == EIO && !std::exchange(retried, true)) continue;
    throw Error(ErrorCode::kIo,
                fmt::format("{}: reading {} bytes at {}: {}; check the disk", Printable(name_),
                            out.size(), offset, std::strerror(errno)));
  }
}

void ModelFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  SPILLWAY_CHECK(offset >= 0 && static_cast<int64_t>(out.size()) <= size() - offset);
  while (!out.empty()) {
    const std::size_t count = ReadSome(offset, out);
    if (count == 0) ThrowChanged();
    out = out.subspan(count);
    offset += static_cast<int64_t>(count);
  }
  // Checked after the read, so that a change which the read may have seen is never missed. About
  // 0.3 us.
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0 || FileIdentity::Of(status) != identity_) ThrowChanged();
}

std::string ModelFile::ReadStart(int64_t max_bytes) const {
  std::string text(static_cast<std::size_t>(std::min(max_bytes, size())), '\0');
  ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void ThrowMalformed(const ModelFile& file, std::string_view what) {
  throw Error(ErrorCode::kModelMalformed,
              fmt::format("{}: {}; download it again", Printable(file.name()), what));
}

}  // namespace spillway
