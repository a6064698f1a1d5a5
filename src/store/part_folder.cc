#include "src/store/part_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/lock_holder.h"
#include "src/store/companions.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// Removes files that are a store's; anything else in the folder keeps it from being removed. The
// table goes first: what is left of a killed removal is no store.
void RemoveStoreFiles(int folder) {
  ::unlinkat(folder, kStoreTableName, 0);
  ::unlinkat(folder, kStoreWeightsName, 0);
  for (const char* name : kCompanionNames) ::unlinkat(folder, name, 0);
}

// A store whose removal was cut short, rather than a model of somebody's that has a weights.bin.
bool HoldsOnlyStoreFiles(const std::filesystem::path& folder) {
  const auto is_ours = [](const std::filesystem::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name == kStoreWeightsName ||
           std::ranges::find(kCompanionNames, name) != kCompanionNames.end();
  };
  std::error_code error;
  const std::filesystem::directory_iterator entries(folder, error);
  return !error && std::all_of(begin(entries), end(entries), is_ours);
}

bool SameFolder(int folder, int parent, const std::string& name) {
  struct stat held {};
  struct stat named {};
  return ::fstat(folder, &held) == 0 &&
         ::fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

// A part that nobody works on, locked.
Descriptor TakeStalePart(int parent, const std::string& name) {
  Descriptor part(::openat(parent, name.c_str(), kFolderFlags));
  struct stat status {};
  const bool own = part.valid() && ::fstat(part.get(), &status) == 0 &&
                   status.st_uid == ::geteuid() && ::flock(part.get(), LOCK_EX | LOCK_NB) == 0;
  return own && SameFolder(part.get(), parent, name) ? std::move(part) : Descriptor();
}

std::filesystem::path WithoutTrailingSlash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

PartFolder::PartFolder(const std::filesystem::path& folder, bool replace)
    : path_(WithoutTrailingSlash(folder)), place_(path_), replace_(replace) {
  if (!place_.has_name()) {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is no name for a new folder; give another --output",
                            Printable(folder.native())));
  }
  if (!place_.valid()) ThrowPath(FolderOf(path_).native());
  CheckTarget(replace);
  // A conversion that ends while we look turns the folder we hold into a store: then look again.
  int attempts = 0;
  while (!Claim()) {
    if (++attempts == 3) ThrowPath(place_.part_name());
    CheckTarget(replace);
  }
  RemoveStoreFiles(part_.get());
}

PartFolder::~PartFolder() {
  if (committed_ || !part_.valid() ||
      !SameFolder(part_.get(), place_.folder().get(), place_.part_name()))
    return;
  RemoveStoreFiles(part_.get());
  ::unlinkat(place_.folder().get(), place_.part_name().c_str(), AT_REMOVEDIR);
}

void PartFolder::ThrowPath(const std::string& name) const {
  const int error = errno;
  throw Error(error == EMFILE || error == ENFILE ? ErrorCode::kSystemLimit : ErrorCode::kPath,
              fmt::format("{}: cannot be used: {}; give another --output", Printable(name),
                          std::strerror(error)));
}

void PartFolder::CheckTarget(bool replace) const {
  const auto status = place_.StatusOf(place_.name());
  if (!status) {
    if (errno == ENOENT) return;
    ThrowPath(path_.native());
  }
  const auto holds = [&](const std::string& file) {
    const std::string name = place_.name() + "/" + file;
    return ::faccessat(place_.folder().get(), name.c_str(), F_OK, 0) == 0;
  };
  const bool is_store =
      S_ISDIR(status->st_mode) &&
      (holds(kStoreTableName) || (holds(kStoreWeightsName) && HoldsOnlyStoreFiles(path_)));
  if (is_store && replace) return;
  throw Error(ErrorCode::kOutputExists,
              fmt::format("{}: exists{}; give {}another --output", Printable(path_.native()),
                          is_store ? "" : " and is not a converted model",
                          is_store ? "--overwrite or " : ""));
}

// Whether the folder we locked is still the one with the name.
bool PartFolder::Claim() {
  if (::mkdirat(place_.folder().get(), place_.part_name().c_str(), 0700) != 0 && errno != EEXIST) {
    ThrowPath(path_.native());
  }
  part_ = Descriptor(::openat(place_.folder().get(), place_.part_name().c_str(), kFolderFlags));
  if (!part_.valid()) ThrowPath(place_.part_name());
  // Without locks (some network filesystems) only the exclusive creation of files is left.
  if (::flock(part_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    const std::string holder = LockHolderText(part_);
    part_ = Descriptor();  // not ours to remove
    throw Error(ErrorCode::kRunInUse,
                fmt::format("{}: another process{} is converting the model; wait for it",
                            Printable(place_.part_name()), holder));
  }
  return SameFolder(part_.get(), place_.folder().get(), place_.part_name());
}

void RemoveStaleParts(const std::filesystem::path& folder) {
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.starts_with(kRunStorePrefix) && name.ends_with(PartPathOf(kRunStoreSuffix).string()))
      names.push_back(std::move(name));
  }
  for (const std::string& name : names) {
    const Descriptor part = TakeStalePart(parent.get(), name);
    if (!part.valid()) continue;
    RemoveStoreFiles(part.get());
    ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
  }
}

void PartFolder::Commit() {
  Sync(part_, path_.native());
  if (!place_.Move(ExistingFile::kKeep)) {
    const bool exists = errno == EEXIST || errno == ENOTEMPTY;
    if (!exists || !replace_) {
      throw Error(exists ? ErrorCode::kOutputExists : ErrorCode::kIo,
                  fmt::format("{}: cannot be put in place: {}; give another --output",
                              Printable(path_.native()), std::strerror(errno)));
    }
    Exchange();
  }
  committed_ = true;
  Sync(place_.folder(), path_.native());
}

void PartFolder::Exchange() {
  const int parent = place_.folder().get();
  const std::string& name = place_.name();
  const std::string& part_name = place_.part_name();
  const Descriptor old(::openat(parent, name.c_str(), kFolderFlags));
  if (!old.valid()) ThrowPath(path_.native());
  // The old store is NAME.part after the exchange: nobody may begin to convert in it meanwhile.
  if (::flock(old.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(
        ErrorCode::kRunInUse,
        fmt::format("{}: another process is replacing it; wait for it", Printable(path_.native())));
  }
  const bool exchanged =
      ::renameat2(parent, part_name.c_str(), parent, name.c_str(), RENAME_EXCHANGE) == 0;
  RemoveStoreFiles(old.get());
  ::unlinkat(parent, (exchanged ? part_name : name).c_str(), AT_REMOVEDIR);
  if (exchanged) return;
  if (!place_.Move(ExistingFile::kReplace)) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot be put in place: {}; give another --output",
                                            Printable(path_.native()), std::strerror(errno)));
  }
}

}  // namespace spillway
