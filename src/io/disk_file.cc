#include "src/io/disk_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "spillway/error.h"
#include "src/base/system_error.h"
#include "src/io/disk_transfer.h"

namespace spillway {
namespace {

constexpr mode_t kPrivate = 0600;  // KV in scratch files tells the prompts

[[noreturn]] void ThrowOpen(const std::string& name, int error) {
  const std::string text = fmt::format("{}: {}", Printable(name), std::strerror(error));
  switch (error) {
    case ENOENT:
      throw Error(ErrorCode::kModelMissing, text + "; convert the model again");
    case EMFILE:
    case ENFILE:
      throw Error(ErrorCode::kSystemLimit, text + "; raise the limit on open files (ulimit -n)");
    case ENOSPC:
    case EDQUOT:
      throw Error(ErrorCode::kDiskSpace, text + "; free some space or give another --offload-dir");
    case EIO:
    case ESTALE:
      throw Error(ErrorCode::kIo, text + "; check the disk");
    case ELOOP:
      throw Error(ErrorCode::kPath,
                  fmt::format("{}: is a symbolic link; remove it", Printable(name)));
    default:
      throw Error(ErrorCode::kPath, text + "; check the folder's permissions");
  }
}

[[noreturn]] void ThrowSync(const std::string& name, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  throw Error(full ? ErrorCode::kDiskSpace : ErrorCode::kIo,
              fmt::format("{}: cannot be synced: {}; {}", Printable(name), std::strerror(error),
                          full ? "free some space" : "check the disk"));
}

Descriptor CreateExclusively(int folder, const std::string& name) {
  Descriptor file(
      ::openat(folder, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivate));
  if (!file.valid()) ThrowOpen(name, errno);
  return file;
}

// Stands in on filesystems without O_TMPFILE: a name that nobody can have foreseen, gone again at
// once.
Descriptor CreateAndUnlink(int folder) {
  uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != ssize_t{sizeof(random)}) {
    ThrowOpen("scratch file", errno);
  }
  const std::string name = fmt::format(".spillway-scratch-{:016x}", random);
  Descriptor file = CreateExclusively(folder, name);
  if (::unlinkat(folder, name.c_str(), 0) != 0) ThrowOpen(name, errno);
  return file;
}

Descriptor CreateNameless(int folder) {
  Descriptor file(::openat(folder, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, kPrivate));
  if (file.valid()) return file;
  const bool unsupported =
      errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT;
  if (!unsupported) ThrowOpen("scratch file", errno);
  return CreateAndUnlink(folder);
}

// Why the file cannot be used with O_DIRECT; null when nothing is known against it.
const char* ReasonAgainstDirect(int fd) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) != 0) return nullptr;
  if ((status.stx_mask & STATX_DIOALIGN) == 0) return nullptr;
  if (status.stx_dio_offset_align == 0) return "the filesystem has no direct access to this file";
  if (status.stx_dio_offset_align > kDiskBlockBytes || status.stx_dio_mem_align > kDiskBlockBytes) {
    return "the filesystem asks for more than 4 KiB of alignment";
  }
#else
  static_cast<void>(fd);
#endif
  return nullptr;
}

// Takes the bytes' place on disk; the errno where it cannot. A filesystem without fallocate (ext2,
// some network ones) gives no promise: that there is room now must do.
int ReservePlace(int fd, int64_t bytes) {
  int result = -1;
  do result = ::fallocate(fd, 0, 0, bytes);
  while (result != 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  struct statvfs status {};
  if (::fstatvfs(fd, &status) != 0) return errno;
  const auto free = static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
  if (free < bytes) return ENOSPC;
  return ::ftruncate(fd, bytes) == 0 ? 0 : errno;
}

template <typename Attempt>  // int64_t(const DiskRequest&): bytes or negative errno
void RunTransfer(const DiskRequest& request, Attempt attempt) {
  if (request.memory.empty()) return;
  SPILLWAY_CHECK(!request.file->direct() || IsBlockAligned(request));
  DiskTransfer transfer(request);
  while (true) {
    switch (transfer.Advance(attempt(transfer.Remaining()))) {
      case DiskTransfer::Step::kFinished:
        return;
      case DiskTransfer::Step::kFailed:
        ThrowDiskFailure(transfer.failure());
      case DiskTransfer::Step::kPause:
        std::this_thread::sleep_for(kPauseBetweenAttempts);
        break;
      case DiskTransfer::Step::kAgain:
        break;
    }
  }
}

}  // namespace

DiskFile::DiskFile(Descriptor file, std::string name, Use use, DiskMode mode)
    : file_(std::move(file)), name_(std::move(name)), use_(use) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) ThrowOpen(name_, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: not a regular file; convert the model again", Printable(name_)));
  }
  inode_ = status.st_ino;
  device_ = status.st_dev;
  size_ = status.st_size;
  modified_ns_ = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (mode == DiskMode::kDirect) AskForDirect();
}

DiskFile::DiskFile(Descriptor file, std::string name, int64_t reserve_bytes, DiskMode mode)
    : DiskFile(std::move(file), std::move(name), Use::kWrite, mode) {
  Reserve(reserve_bytes);
}

DiskFile DiskFile::OpenAt(int folder_fd, const std::string& name, DiskMode mode) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  Descriptor file(::openat(folder_fd, name.c_str(), kFlags));
  if (!file.valid()) ThrowOpen(name, errno);
  return DiskFile(std::move(file), name, Use::kRead, mode);
}

DiskFile DiskFile::Open(const DiskFolder& folder, const std::string& name, DiskMode mode) {
  return OpenAt(folder.fd(), name, mode);
}

DiskFile DiskFile::CreateAt(int folder_fd, const std::string& name, int64_t bytes, DiskMode mode) {
  Descriptor file = CreateExclusively(folder_fd, name);
  try {
    return DiskFile(std::move(file), name, bytes, mode);
  } catch (const Error&) {
    ::unlinkat(folder_fd, name.c_str(), 0);
    throw;
  }
}

DiskFile DiskFile::CreateScratch(const DiskFolder& folder, int64_t bytes, DiskMode mode) {
  return DiskFile(CreateNameless(folder.fd()), "scratch file", bytes, mode);
}

void DiskFile::AskForDirect() {
  buffered_reason_ = ReasonAgainstDirect(file_.get());
  if (buffered_reason_ != nullptr) return;
  // Set after open: some kernels create the file and then refuse the flag.
  const int flags = ::fcntl(file_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(file_.get(), F_SETFL, flags | O_DIRECT) != 0) {
    buffered_reason_ = "the filesystem refuses O_DIRECT";
    return;
  }
  direct_ = true;
}

void DiskFile::Reserve(int64_t bytes) {
  const int error = ReservePlace(file_.get(), bytes);
  if (const std::string_view room = RoomAdvice(error); !room.empty()) {
    throw Error(ErrorCode::kDiskSpace,
                fmt::format("{}: needs {} bytes of disk: {}; {}, give another --offload-dir or "
                            "keep less on disk",
                            Printable(name_), bytes, std::strerror(error), room));
  }
  if (error != 0) ThrowOpen(name_, error);
  size_ = bytes;
}

std::string DiskFile::buffered_reason() const {
  if (direct()) return {};
  if (fell_back_.load(std::memory_order_acquire)) return "the filesystem refused a direct request";
  return buffered_reason_ != nullptr ? buffered_reason_ : std::string();
}

void DiskFile::FallBackToBuffered() const {
  const int flags = ::fcntl(file_.get(), F_GETFL);
  if (!direct() || flags < 0) return;
  if (::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT) != 0) return;
  fell_back_.store(true, std::memory_order_release);
  direct_.store(false, std::memory_order_release);
}

bool DiskFile::Changed() const {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return true;
  if (status.st_ino != inode_ || status.st_dev != device_ || status.st_size != size_) return true;
  const int64_t modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  return use_ == Use::kRead && modified_ns != modified_ns_;
}

void DiskFile::Sync() const {
  if (::fsync(file_.get()) != 0) ThrowSync(name_, errno);
}

void DiskFile::ReadAt(int64_t offset, std::span<std::byte> memory) const {
  RunTransfer({DiskOp::kRead, this, offset, memory}, [](const DiskRequest& rest) -> int64_t {
    const ssize_t count =
        ::pread(rest.file->fd(), rest.memory.data(), rest.memory.size(), rest.offset);
    return count >= 0 ? count : -errno;
  });
}

void DiskFile::WriteAt(int64_t offset, std::span<const std::byte> memory) const {
  // A write only reads its memory; the request type is shared with reads.
  const std::span<std::byte> bytes(const_cast<std::byte*>(memory.data()), memory.size());
  RunTransfer({DiskOp::kWrite, this, offset, bytes}, [](const DiskRequest& rest) -> int64_t {
    const ssize_t count =
        ::pwrite(rest.file->fd(), rest.memory.data(), rest.memory.size(), rest.offset);
    return count >= 0 ? count : -errno;
  });
}

}  // namespace spillway
