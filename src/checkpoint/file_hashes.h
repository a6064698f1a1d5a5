// FileHashes: hashes of whole files, remembered from run to run, so that a model of many gigabytes
// is read for its hash once. A file counts as unchanged while device, inode, size and both times of
// change, to the nanosecond, are the same: who keeps size and time of modification cannot keep the
// time of the change. Thread rule: one thread.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/checkpoint/model_file.h"

namespace spillway {

// Bytes of a file, and how many of them are read; not called for a file that is remembered.
using HashProgress = std::function<void(const std::string& name, int64_t done, int64_t total)>;

class FileHashes {
 public:
  // Remembers in the file `memory`; empty: within this object only. A file that cannot be read, or
  // lines of it that say nothing, count as nothing remembered.
  explicit FileHashes(std::filesystem::path memory) : memory_(std::move(memory)) {}

  // Hash of the file's size and all its bytes, which this object reads once.
  // Throws: Error kIo, kCorrupt (it changed meanwhile), kInterrupted, kSystemLimit.
  uint64_t Of(const ModelFile& file, const HashProgress& progress = {});

  // Writes what it learned since, for later runs. A failure is passed over: they read the files
  // again.
  void Save() noexcept;

 private:
  using Hashes = std::map<FileStamp, uint64_t>;

  static Hashes Read(const std::filesystem::path& memory);

  std::filesystem::path memory_;
  std::optional<Hashes> known_;  // nullopt: not read yet
  Hashes learned_;
};

// Where the user's runs remember; empty where there is no folder for it.
std::filesystem::path FileHashMemory();

}  // namespace spillway
