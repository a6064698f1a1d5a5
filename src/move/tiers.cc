#include "src/move/tiers.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/base/clock.h"
#include "src/io/disk_backend.h"
#include "src/store/store_table.h"

namespace spillway {
namespace {

// Streams submit with the label of what is moved, which stays until the ticket is done.
TraceSpan TraceOf(const DiskSpan& disk) {
  TraceSpan span;
  span.lane = LaneOf(disk.op == DiskOp::kRead ? Link::kDiskRead : Link::kDiskWrite);
  span.label = *static_cast<const TraceLabel*>(disk.user_data);
  span.begin_s = SecondsOf(disk.begin);
  span.end_s = SecondsOf(disk.end);
  span.bytes = disk.bytes;
  return span;
}

}  // namespace

Tiers::Tiers(const Plan& plan, const DiskOptions& disk, Device& device)
    : device_(device),
      gpu_(device.MakeArena(Tier::kGpu, plan.arena_bytes[Tier::kGpu])),
      cpu_(device.MakeArena(Tier::kCpu, plan.arena_bytes[Tier::kCpu])) {
  if (plan.weight_bytes[Tier::kDisk] > 0) OpenStoreOf(plan, disk);
  Fit(plan, disk);
}

void Tiers::Fit(const Plan& plan, const DiskOptions& disk) {
  queue_.reset();
  for (std::unique_ptr<Scratch>* scratch :
       {&kv_scratch_, &log_states_, &log_tokens_, &hidden_scratch_})
    scratch->reset();
  if (plan.arena_bytes[Tier::kDisk] == 0) return;
  if (!folder_) folder_.emplace(disk.folder);
  OpenScratch(plan, disk);
  OpenQueue(plan, disk);
}

// Memory that disk requests read or write: staging in CPU memory and the bounce rings. The rest of
// the arena is never a request's, and to register it would take all of its pages at once.
std::vector<std::span<std::byte>> Tiers::DiskMemory(const Plan& plan) const {
  const std::array<Region, 3> rings = plan.bounce.regions();
  std::vector<Region> regions(rings.begin(), rings.end());
  if (plan.device() == Tier::kCpu) regions.push_back(plan.weight_staging);
  for (const StagingPlan& staging : {plan.kv_staging, plan.hidden_staging}) {
    if (staging.tier != Tier::kCpu) continue;
    regions.insert(regions.end(), staging.slots.begin(), staging.slots.end());
  }
  regions.insert(regions.end(), plan.kv_log.staging.begin(), plan.kv_log.staging.end());
  std::vector<std::span<std::byte>> memory;
  for (const Region& region : regions) {
    if (region.bytes > 0) memory.push_back(cpu_->View(region));
  }
  return memory;
}

std::vector<const DiskFile*> Tiers::files() const {
  std::vector<const DiskFile*> files;
  if (store_) files.push_back(&store_->file());
  for (const Scratch* scratch : scratches()) {
    if (scratch != nullptr) files.push_back(&scratch->file());
  }
  return files;
}

void Tiers::ForgetSpills() {
  for (Scratch* scratch : scratches()) {
    if (scratch != nullptr) scratch->ClearAll();
  }
}

bool Tiers::SpillsToMemory() const { return folder_ && folder_->FilesystemKind() == "tmpfs"; }

void Tiers::OpenStoreOf(const Plan& plan, const DiskOptions& disk) {
  folder_.emplace(disk.folder);
  store_.reset(new Store(OpenStore(disk.store)));  // NOLINT: a Store does not move
  if (ShapeText(store_->shape()) != ShapeText(plan.shape)) {
    throw Error(ErrorCode::kModelInconsistent,
                fmt::format("{}: is the store of another model; delete it",
                            Printable(disk.store.string())));
  }
  if (disk.origin != nullptr) repair_.emplace(*store_, *disk.origin);
}

void Tiers::OpenQueue(const Plan& plan, const DiskOptions& disk) {
  DiskBackendOptions backend;
  backend.kind = disk.backend;
  backend.buffers = DiskMemory(plan);
  std::unique_ptr<DiskBackend> made = MakeDiskBackend(backend);
  if (!disk.faults.faults.empty() || disk.faults.shuffle) {
    made = std::make_unique<FaultBackend>(std::move(made), disk.faults);
  }
  DiskQueueOptions options;
  if (TraceLog* log = disk.trace_log) {
    options.on_done = [log](const DiskSpan& span) {
      if (span.user_data != nullptr) log->Add(TraceOf(span));
    };
  }
  queue_ = std::make_unique<DiskQueue>(std::move(made), options);
}

void Tiers::OpenScratch(const Plan& plan, const DiskOptions& disk) {
  if (plan.kv[Tier::kDisk].region.bytes > 0) {
    ScratchLayout layout = {plan.num_batches, {}, plan.KvBlockBytes(Tier::kDisk)};
    for (int64_t decoder_layer = 0; decoder_layer < plan.shape.num_layers; ++decoder_layer) {
      layout.blocks_per_slot.push_back(plan.KvSlots(Tier::kDisk, decoder_layer) /
                                       plan.slot_align[Tier::kDisk]);
    }
    kv_scratch_ = std::make_unique<Scratch>(*folder_, layout, disk.run_id);
  }
  if (plan.kv_log.exists()) {
    const KvLogPlan& log = plan.kv_log;
    const auto layout = [&](int64_t blocks, int64_t block_bytes) {
      const auto layers = static_cast<std::size_t>(plan.shape.num_layers);
      return ScratchLayout{plan.num_batches, std::vector<int64_t>(layers, blocks), block_bytes};
    };
    // A run in these tiers may have smaller budgets, and states, than the plan that they are for.
    const int64_t state_blocks = log.rows * log.state_bytes / kTileAlignBytes;
    log_states_ =
        std::make_unique<Scratch>(*folder_, layout(state_blocks, kTileAlignBytes), disk.run_id + 2);
    log_tokens_ = std::make_unique<Scratch>(
        *folder_, layout((log.passes - 1) * log.rows, log.token_bytes), disk.run_id + 3);
  }
  if (plan.hidden[Tier::kDisk].region.bytes > 0) {
    const int64_t batch_bytes = plan.hidden[Tier::kDisk].region.bytes / plan.num_batches;
    const ScratchLayout layout = {
        plan.num_batches, {batch_bytes / kHiddenBlockBytes}, kHiddenBlockBytes};
    hidden_scratch_ = std::make_unique<Scratch>(*folder_, layout, disk.run_id + 1);
  }
}

}  // namespace spillway
