#include "src/store/make_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

#include "spillway/error.h"
#include "src/base/stop_signal.h"
#include "src/base/terminal.h"
#include "src/io/disk_backend.h"
#include "src/memory/arena.h"
#include "src/store/part_folder.h"
#include "src/store/store.h"
#include "src/store/write_store.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFillBytes = 256 << 10;  // of a tile that one task converts
constexpr std::chrono::milliseconds kStorePoll{200};

// Absent, or a folder that only this user, or the system's, can write to.
bool IsOwn(const fs::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return true;  // what reads or makes it says the rest
  const bool owned = status.st_uid == ::geteuid() || status.st_uid == 0;
  return S_ISDIR(status.st_mode) && owned && (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

bool HasStores(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  return !error && std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with(kRunStorePrefix) && name.ends_with(kRunStoreSuffix);
  });
}

fs::path StorePath(const fs::path& folder, const std::string& content_key) {
  fs::path common = folder / fmt::format("{}{}{}", kRunStorePrefix, content_key, kRunStoreSuffix);
  if (IsOwn(common)) return common;
  fs::path own =
      folder / fmt::format("{}{}-{}{}", kRunStorePrefix, content_key, ::geteuid(), kRunStoreSuffix);
  if (!IsOwn(own)) {
    throw Error(ErrorCode::kPath,
                fmt::format("{}: is not yours alone; remove it, or give another --offload-dir",
                            Printable(own.string())));
  }
  PrintWarning(fmt::format("{}: others may change it, so that it is not used; {} is",
                           Printable(common.string()), Printable(own.filename().string())));
  return own;
}

void MakeStore(const StoreSource& source, const std::filesystem::path& path, ExistingStore existing,
               ThreadPool& pool, const StoreProgress& progress) {
  StoreJob job;
  job.model = source.model;
  job.content_key = source.content_key;
  job.companions = source.companions;
  job.replace = existing == ExistingStore::kReplace;
  job.progress = progress;
  job.fill = [&](const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
    const TensorSpec& spec = tensor.spec;
    const WeightRun whole = {tensor.layer, tensor.index, &spec, rows.begin * spec.cols};
    const int64_t unit_bytes = spec.unit_bytes();
    const int64_t step = source.reader.UnitsOfRun(whole, kFillBytes);
    const int64_t count = rows.size() * spec.row_bytes() / unit_bytes;
    auto read = [&](int64_t index, int worker) {
      const int64_t at = index * step;
      const int64_t num = std::min(step, count - at);
      WeightRun part = whole;
      part.first_element += at * spec.unit_elements();
      source.reader.Read(part,
                         out.subspan(static_cast<std::size_t>(at * unit_bytes),
                                     static_cast<std::size_t>(num * unit_bytes)),
                         worker);
    };
    pool.Run((count + step - 1) / step, read);
  };
  const HostArena staging(StoreStagingBytes(source.model));
  DiskQueue queue(MakeDiskBackend({}));
  WriteStore(job, path, queue, staging.View({0, staging.bytes()}));
}

void EnsureStore(const StoreSource& source, const std::filesystem::path& path, ThreadPool& pool,
                 const StoreProgress& progress, const std::function<void()>& on_wait) {
  while (ProbeStore(path, source.content_key) != StoreState::kReady) {
    try {
      return MakeStore(source, path, ExistingStore::kReplace, pool, progress);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kRunInUse) throw;
    }
    ThrowIfStopRequested();
    if (on_wait) on_wait();
    std::this_thread::sleep_for(kStorePoll);
  }
}

}  // namespace spillway
