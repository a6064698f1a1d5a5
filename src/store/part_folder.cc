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

#include "spillway/error.h"
#include "src/store/companions.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

// Only files that are a store's; anything else in the folder keeps it from being removed. The table
// goes first: what is left of a killed removal is no store.
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

void SyncFolder(int folder, const std::filesystem::path& path) {
  // Some filesystems have nothing to sync in a folder.
  if (::fsync(folder) == 0 || errno == EINVAL) return;
  throw Error(ErrorCode::kIo, fmt::format("{}: cannot be synced: {}; check the disk",
                                          Printable(path.native()), std::strerror(errno)));
}

std::filesystem::path WithoutTrailingSlash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

PartFolder::PartFolder(const std::filesystem::path& folder, bool replace)
    : path_(WithoutTrailingSlash(folder)),
      name_(path_.filename().string()),
      part_name_(name_ + ".part"),
      replace_(replace) {
  if (name_.empty() || name_ == "." || name_ == "..") {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is no name for a new folder; give another --output",
                            Printable(folder.native())));
  }
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  parent_ = Descriptor(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!parent_.valid()) ThrowPath(parent.native());
  CheckTarget(replace);
  // A conversion that ends while we look turns the folder we hold into a store: then look again.
  int attempts = 0;
  while (!Claim()) {
    if (++attempts == 3) ThrowPath(part_name_);
    CheckTarget(replace);
  }
  RemoveStoreFiles(part_.get());
}

PartFolder::~PartFolder() {
  if (committed_ || !part_.valid() || !SameFolder(part_.get(), parent_.get(), part_name_)) return;
  RemoveStoreFiles(part_.get());
  ::unlinkat(parent_.get(), part_name_.c_str(), AT_REMOVEDIR);
}

void PartFolder::ThrowPath(const std::string& name) const {
  const int error = errno;
  throw Error(error == EMFILE || error == ENFILE ? ErrorCode::kSystemLimit : ErrorCode::kPath,
              fmt::format("{}: cannot be used: {}; give another --output", Printable(name),
                          std::strerror(error)));
}

void PartFolder::CheckTarget(bool replace) const {
  struct stat status {};
  if (::fstatat(parent_.get(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return;
    ThrowPath(path_.native());
  }
  const std::string table = name_ + "/" + kStoreTableName;
  const std::string weights = name_ + "/" + kStoreWeightsName;
  const bool is_store =
      S_ISDIR(status.st_mode) &&
      (::faccessat(parent_.get(), table.c_str(), F_OK, 0) == 0 ||
       (::faccessat(parent_.get(), weights.c_str(), F_OK, 0) == 0 && HoldsOnlyStoreFiles(path_)));
  if (is_store && replace) return;
  throw Error(ErrorCode::kOutputExists,
              fmt::format("{}: exists{}; give {}another --output", Printable(path_.native()),
                          is_store ? "" : " and is not a converted model",
                          is_store ? "--overwrite or " : ""));
}

// Whether the folder we locked is still the one with the name.
bool PartFolder::Claim() {
  if (::mkdirat(parent_.get(), part_name_.c_str(), 0700) != 0 && errno != EEXIST) {
    ThrowPath(path_.native());
  }
  part_ = Descriptor(::openat(parent_.get(), part_name_.c_str(), kFolderFlags));
  if (!part_.valid()) ThrowPath(part_name_);
  // Without locks (some network filesystems) only the exclusive creation of files is left.
  if (::flock(part_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    part_ = Descriptor();  // not ours to remove
    throw Error(ErrorCode::kRunInUse,
                fmt::format("{}: another process is converting the model; wait for it",
                            Printable(part_name_)));
  }
  return SameFolder(part_.get(), parent_.get(), part_name_);
}

void PartFolder::Commit() {
  SyncFolder(part_.get(), path_);
  int renamed = ::renameat2(parent_.get(), part_name_.c_str(), parent_.get(), name_.c_str(),
                            RENAME_NOREPLACE);
  if (renamed != 0 && errno == EINVAL) {  // a filesystem without the flag
    renamed = ::renameat(parent_.get(), part_name_.c_str(), parent_.get(), name_.c_str());
  }
  if (renamed != 0) {
    const bool exists = errno == EEXIST || errno == ENOTEMPTY;
    if (!exists || !replace_) {
      throw Error(exists ? ErrorCode::kOutputExists : ErrorCode::kIo,
                  fmt::format("{}: cannot be put in place: {}; give another --output",
                              Printable(path_.native()), std::strerror(errno)));
    }
    Exchange();
  }
  committed_ = true;
  SyncFolder(parent_.get(), path_);
}

void PartFolder::Exchange() {
  const Descriptor old(::openat(parent_.get(), name_.c_str(), kFolderFlags));
  if (!old.valid()) ThrowPath(path_.native());
  // After the exchange the old store is NAME.part: nobody may begin to convert in it meanwhile.
  if (::flock(old.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(
        ErrorCode::kRunInUse,
        fmt::format("{}: another process is replacing it; wait for it", Printable(path_.native())));
  }
  const bool exchanged = ::renameat2(parent_.get(), part_name_.c_str(), parent_.get(),
                                     name_.c_str(), RENAME_EXCHANGE) == 0;
  RemoveStoreFiles(old.get());
  const std::string& old_name = exchanged ? part_name_ : name_;
  ::unlinkat(parent_.get(), old_name.c_str(), AT_REMOVEDIR);
  if (exchanged) return;
  if (::renameat(parent_.get(), part_name_.c_str(), parent_.get(), name_.c_str()) != 0) {
    throw Error(ErrorCode::kIo, fmt::format("{}: cannot be put in place: {}; give another --output",
                                            Printable(path_.native()), std::strerror(errno)));
  }
}

}  // namespace spillway
