// PartFolder: NAME.part beside NAME, where a store is made, and its move to NAME. Locked, so that
// of two processes one makes the store. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "src/base/descriptor.h"
#include "src/base/part_file.h"

namespace spillway {

// Names of the stores that runs make: spillway-KEY.store.
inline constexpr std::string_view kRunStorePrefix = "spillway-";
inline constexpr std::string_view kRunStoreSuffix = ".store";

class PartFolder {
 public:
  // Takes over what a killed conversion left.
  // Throws: Error kOutputExists, kRunInUse, kPath, kSystemLimit.
  PartFolder(const std::filesystem::path& folder, bool replace);
  ~PartFolder();  // without Commit: removed, with the files of a store that are in it
  PartFolder(const PartFolder&) = delete;
  PartFolder& operator=(const PartFolder&) = delete;

  int fd() const { return part_.get(); }

  // Makes the folder durable and gives it its name, replacing a store that has it.
  // Requires: its files are synced. Throws: Error kIo, kDiskSpace, kOutputExists, kRunInUse.
  void Commit();

 private:
  void CheckTarget(bool replace) const;
  bool Claim();
  void Exchange();
  [[noreturn]] void ThrowPath(const std::string& name) const;

  std::filesystem::path path_;
  PartFile place_;
  bool replace_;
  bool committed_ = false;
  Descriptor part_;
};

// Removes from `folder` what killed conversions of runs left there: parts of stores whose owner is
// this user and which no process holds. What cannot be removed stays.
void RemoveStaleParts(const std::filesystem::path& folder);

}  // namespace spillway
