// DiskFile: one open file of the disk tier, with O_DIRECT where the filesystem takes it.
// Thread rule: const methods from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"
#include "src/io/disk_folder.h"

namespace spillway {

// Alignment of memory, offset and size in every request to a direct file. Files of the
// disk tier are padded to it. No filesystem of today asks for more than this of O_DIRECT.
inline constexpr int64_t kDiskBlockBytes = 4096;

enum class DiskMode { kDirect, kBuffered };

// Stays where it was made: requests in flight refer to it.
class DiskFile {
 public:
  // An existing regular file, for reading; a symbolic link is refused.
  // Throws (all three): Error kPath, kSystemLimit, kIo; this one kModelMissing too (no such file,
  // not a regular file).
  static DiskFile Open(const DiskFolder& folder, const std::string& name,
                       DiskMode mode = DiskMode::kDirect);
  // Opens a file below a folder that may not be writable. `folder_fd` is only used during the call.
  static DiskFile OpenAt(int folder_fd, const std::string& name, DiskMode mode = DiskMode::kDirect);

  // A new file of `bytes` bytes, all reserved, mode 0600. Whatever has the name already, a link
  // included, is left alone and refused.
  // Throws: also Error kDiskSpace; then nothing is left behind.
  static DiskFile CreateAt(int folder_fd, const std::string& name, int64_t bytes,
                           DiskMode mode = DiskMode::kDirect);

  // Creates a file without a name: gone when it is closed, however the process ends.
  static DiskFile CreateScratch(const DiskFolder& folder, int64_t bytes,
                                DiskMode mode = DiskMode::kDirect);

  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  int fd() const { return file_.get(); }
  const std::string& name() const { return name_; }  // what messages call it
  int64_t size() const { return size_; }             // when it was opened or made

  bool direct() const { return direct_.load(std::memory_order_acquire); }
  // Why a file for which O_DIRECT was asked goes through the page cache; empty when it does not.
  std::string buffered_reason() const;

  // Takes O_DIRECT off: the filesystem refused a request for its alignment. Const, because it
  // changes how bytes travel and not which.
  void FallBackToBuffered() const;

  // Counts reads that failed and succeeded when they were repeated.
  void NoteRepeated() const { num_repeated_.fetch_add(1, std::memory_order_relaxed); }
  int64_t num_repeated() const { return num_repeated_.load(std::memory_order_relaxed); }

  // Whether the file is another or has another size than when it was opened, or, of a file opened
  // for reading, another time of change. About 0.3 us.
  bool Changed() const;

  // Makes what was written durable. Never called again after it threw: a second fsync may claim
  // success for lost pages. Throws: Error kIo, kDiskSpace.
  void Sync() const;

  // All of `memory`, on this thread, under the rules of DiskTransfer.
  // Requires: inside the file; for a direct file the alignment of kDiskBlockBytes.
  // Throws: Error kIo, kDiskSpace.
  void ReadAt(int64_t offset, std::span<std::byte> memory) const;
  void WriteAt(int64_t offset, std::span<const std::byte> memory) const;

 private:
  enum class Use { kRead, kWrite };
  DiskFile(Descriptor file, std::string name, Use use, DiskMode mode);
  DiskFile(Descriptor file, std::string name, int64_t reserve_bytes, DiskMode mode);
  void AskForDirect();
  void Reserve(int64_t bytes);

  Descriptor file_;
  std::string name_;
  Use use_;
  uint64_t inode_ = 0;
  uint64_t device_ = 0;
  int64_t size_ = 0;
  int64_t modified_ns_ = 0;
  const char* buffered_reason_ = nullptr;  // a literal
  mutable std::atomic<bool> direct_ = false;
  mutable std::atomic<bool> fell_back_ = false;
  mutable std::atomic<int64_t> num_repeated_ = 0;
};

}  // namespace spillway
