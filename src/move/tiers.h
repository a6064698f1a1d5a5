// Tiers: the memory and files of a run, as the plan sized them. The owner of every engine byte.
// Thread rule: construct and destroy on one thread; views may be used from any.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "spillway/plan.h"
#include "src/device/device.h"
#include "src/io/disk_folder.h"
#include "src/io/disk_queue.h"
#include "src/io/fault_backend.h"
#include "src/io/scratch.h"
#include "src/memory/arena.h"
#include "src/report/trace_log.h"
#include "src/store/repair_store.h"
#include "src/store/store.h"

namespace spillway {

struct DiskOptions {
  std::filesystem::path folder;
  std::filesystem::path store;          // of the weights; not used when none is on disk
  const StoreOrigin* origin = nullptr;  // of a store that is only a cache; null: of any other
  uint64_t run_id = 0;                  // binds scratch blocks to this run
  DiskBackendKind backend = DiskBackendKind::kAuto;
  FaultPlan faults;               // for tests
  TraceLog* trace_log = nullptr;  // of disk transfers; null: none
};

class Tiers {
 public:
  // Reserves all of it. Lifetime: device, trace log and origin outlive the tiers. Throws: Error
  // kGpuMemory, kCpuMemory, kSystemLimit, and for the disk what DiskFolder, Scratch and OpenStore
  // throw.
  Tiers(const Plan& plan, const DiskOptions& disk, Device& device);

  // Makes the files anew for another plan, which the memory holds; the store stays.
  // Requires: no move is under way. Throws: as the constructor, for files.
  void Fit(const Plan& plan, const DiskOptions& disk);

  // Requires: not kDisk.
  const Arena& arena(Tier tier) const { return tier == Tier::kGpu ? *gpu_ : *cpu_; }
  std::unique_ptr<CopyQueue> MakeCopyQueue() const { return device_.MakeCopyQueue(); }

  // Null when the plan puts nothing there.
  DiskQueue* queue() const { return queue_.get(); }
  const Store* store() const { return store_.get(); }
  const StoreRepair* repair() const { return repair_ ? &*repair_ : nullptr; }  // of the store
  Scratch* kv_scratch() const { return kv_scratch_.get(); }
  // The log of KvLogPlan: slot (block, batch) holds the rows' states, and a pass's tokens after the
  // other.
  Scratch* log_states() const { return log_states_.get(); }
  Scratch* log_tokens() const { return log_tokens_.get(); }
  Scratch* hidden_scratch() const { return hidden_scratch_.get(); }
  bool Spills() const { return kv_scratch_ != nullptr || hidden_scratch_ != nullptr; }
  // Requires: no move is under way.
  void ForgetSpills();

  // Files that the run reads or writes on disk, for warnings about it.
  std::vector<const DiskFile*> files() const;
  bool SpillsToMemory() const;  // the disk tier's filesystem is one in memory

 private:
  void OpenStoreOf(const Plan& plan, const DiskOptions& disk);
  void OpenQueue(const Plan& plan, const DiskOptions& disk);
  void OpenScratch(const Plan& plan, const DiskOptions& disk);
  std::array<Scratch*, 4> scratches() const {
    return {kv_scratch_.get(), log_states_.get(), log_tokens_.get(), hidden_scratch_.get()};
  }
  std::vector<std::span<std::byte>> DiskMemory(const Plan& plan) const;

  Device& device_;
  std::unique_ptr<Arena> gpu_;
  std::unique_ptr<Arena> cpu_;
  std::optional<DiskFolder> folder_;
  std::unique_ptr<Store> store_;
  std::optional<StoreRepair> repair_;
  std::unique_ptr<Scratch> kv_scratch_;
  std::unique_ptr<Scratch> log_states_;
  std::unique_ptr<Scratch> log_tokens_;
  std::unique_ptr<Scratch> hidden_scratch_;
  std::unique_ptr<DiskQueue> queue_;  // the first to go: the files outlive what is in flight
};

}  // namespace spillway
