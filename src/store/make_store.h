// Checkpoint -> store: on request, and where a run needs one, beside the offload folder's other
// files, once for each content. Thread rule: the main thread; reads run on the pool's threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "spillway/model.h"
#include "src/base/thread_pool.h"
#include "src/store/companions.h"
#include "src/store/weight_reader.h"

namespace spillway {

struct StoreSource {
  const Model& model;
  std::string content_key;
  const WeightReader& reader;
  std::vector<CompanionFile> companions;
};

enum class ExistingStore { kRefuse, kReplace };

using StoreProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

// Whether there is any store that a run made in `folder`, whatever its content.
bool HasStores(const std::filesystem::path& folder);

// FOLDER/spillway-KEY.store. Where that is of another user, who may change it, or may be written by
// others, FOLDER/spillway-KEY-UID.store, with a warning. Throws: Error kPath when that is not the
// user's own either.
std::filesystem::path StorePath(const std::filesystem::path& folder,
                                const std::string& content_key);

// Makes the store at `path`.
// Throws: Error kDiskSpace, kPath, kIo, kRunInUse, kOutputExists, and what the reader throws.
void MakeStore(const StoreSource& source, const std::filesystem::path& path, ExistingStore existing,
               ThreadPool& pool, const StoreProgress& progress);

// Makes the store if no whole one of this content is there. Where another process is making it,
// waits for that one; `on_wait` is called now and then meanwhile. Throws: Error kDiskSpace, kPath,
// kIo, kOutputExists, kInterrupted, and what the reader throws.
void EnsureStore(const StoreSource& source, const std::filesystem::path& path, ThreadPool& pool,
                 const StoreProgress& progress, const std::function<void()>& on_wait);

}  // namespace spillway
