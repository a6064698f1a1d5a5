// One regular file of a model folder, held open and read with pread. Never mapped: a file that
// shrinks during the run gives an Error, not a SIGBUS. Thread rule: const methods from any thread.
#pragma once

#include <sys/stat.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"

namespace spillway {

// Properties that must stay the same for as long as a file is used.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;

  static FileIdentity Of(const struct stat& status);
  bool operator==(const FileIdentity&) const = default;
};

// Properties that no write leaves as they were, even one that puts size and times back.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;

  auto operator<=>(const FileStamp&) const = default;
};

class ModelFile {
 public:
  // `name` is what messages call the file.
  // Throws: Error kModelMissing when `fd` is not a regular file.
  ModelFile(Descriptor fd, std::string name);

  const std::string& name() const { return name_; }
  int64_t size() const { return identity_.size; }
  const FileIdentity& identity() const { return identity_; }

  // As the file is now. Throws: Error kIo.
  FileStamp Stamp() const;

  // Reads all of `out` from byte `offset`, then makes sure that the file is still the one that was
  // opened. Requires: offset + out.size() <= size(). Throws: Error kIo, kCorrupt (changed since it
  // was opened).
  void ReadAt(int64_t offset, std::span<std::byte> out) const;

  // The first min(max_bytes, size()) bytes.
  std::string ReadStart(int64_t max_bytes) const;

 private:
  [[noreturn]] void ThrowChanged() const;
  struct stat Status() const;
  std::size_t ReadSome(int64_t offset, std::span<std::byte> out) const;

  Descriptor fd_;
  std::string name_;
  FileIdentity identity_;
};

// Throws Error kModelMalformed: the file, what is wrong with it, and the remedy.
[[noreturn]] void ThrowMalformed(const ModelFile& file, std::string_view what);

}  // namespace spillway
