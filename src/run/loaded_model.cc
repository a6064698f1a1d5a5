#include "src/run/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "spillway/error.h"
#include "src/base/host.h"
#include "src/base/size_text.h"
#include "src/base/user_folders.h"
#include "src/memory/arena.h"
#include "src/move/mover.h"
#include "src/move/store_rate.h"
#include "src/run/block.h"
#include "src/store/load_weights.h"
#include "src/store/make_store.h"
#include "src/store/part_folder.h"
#include "src/store/weight_reader.h"

namespace spillway {
namespace {

// The store that weights on disk are read from, made first where there is none yet. Empty where the
// plan has no weights on disk.
std::filesystem::path PrepareStore(const RunInputs& inputs, const WeightReader& reader,
                                   ThreadPool& pool, ProgressLine& line) {
  if (inputs.plan.weight_bytes[Tier::kDisk] == 0) return {};
  if (!inputs.model.store.empty()) return inputs.model.store;
  const std::string key = ContentKey(inputs.model, line.NoteReads());
  std::filesystem::path path = StorePath(inputs.offload_folder, key);
  const std::string name = Printable(path.string());
  const auto progress = [&](int64_t done, int64_t total) {
    line.Note(
        fmt::format("converting weights to {}: {} of {}", name, SizeText(done), SizeText(total)));
  };
  const auto wait = [&] {
    line.Note(fmt::format("another process is converting weights to {}: waiting", name));
  };
  EnsureStore({inputs.model, key, reader, {}}, path, pool, progress, wait);
  return path;
}

// A cap that was given may be more than there is: touched page by page, it would end in a kill.
void RefuseMoreThanThereIs(const Plan& plan, const Device& device) {
  const int64_t emulated = device.IsHostMemory() ? plan.PlannedBytes(Tier::kGpu) : 0;
  const int64_t needed = plan.PlannedBytes(Tier::kCpu) + emulated;
  const int64_t available = AvailableMemoryBytes();
  if (needed <= available) return;
  throw Error(ErrorCode::kCpuMemory,
              fmt::format("the plan takes {} of memory{}, and the system, or its control group, "
                          "has {} left; give a smaller --cpu-memory",
                          SizeText(needed), emulated > 0 ? ", the emulated GPU's included" : "",
                          SizeText(available)));
}

// The disk tier of a run. Two variables of the environment are for tests: what goes wrong
// (fault_backend.h) and which backend is used.
DiskOptions DiskOf(const RunInputs& inputs, const std::filesystem::path& store) {
  DiskOptions disk;
  disk.folder = inputs.offload_folder;
  disk.store = store;
  disk.run_id = inputs.seed;
  disk.trace_log = inputs.trace_log;
  if (const char* faults = std::getenv("SPILLWAY_TEST_DISK_FAULTS")) {
    disk.faults = ParseFaultPlan(faults);
  }
  const char* backend = std::getenv("SPILLWAY_TEST_DISK_BACKEND");
  if (backend != nullptr && std::string_view(backend) == "threads") {
    disk.backend = DiskBackendKind::kThreads;
  }
  return disk;
}

void LoadTiers(const RunInputs& inputs, const WeightReader& reader, const Tiers& tiers,
               ThreadPool& pool) {
  LoadWeights(inputs.plan, Tier::kCpu, reader, tiers.arena(Tier::kCpu), pool);
  if (inputs.device.IsHostMemory()) {
    return LoadWeights(inputs.plan, Tier::kGpu, reader, tiers.arena(Tier::kGpu), pool);
  }
  const HostArena staging(pool.num_threads() * kStagedReadBytes);
  const WeightUpload upload = {
      staging.View({0, staging.bytes()}),
      [&](std::byte* to, std::span<const std::byte> from) { inputs.device.CopyIn(to, from); }};
  LoadWeights(inputs.plan, Tier::kGpu, reader, tiers.arena(Tier::kGpu), pool, &upload);
}

// Whether some tile of the tensor has the rows where `tile` has them.
bool HasTile(const PlannedTensor& tensor, const WeightTile& tile) {
  return std::ranges::any_of(tensor.tiles, [&](const WeightTile& other) {
    if (other.tier != tile.tier) return false;
    if (tile.tier == Tier::kDisk)
      return other.row_begin == tile.row_begin && other.offset == tile.offset;
    return other.row_begin <= tile.row_begin && tile.row_begin < other.row_end &&
           other.offset + (tile.row_begin - other.row_begin) * tensor.spec.row_bytes() ==
               tile.offset;
  });
}

// Whether weights that were loaded by one plan are where another looks for them. Neighbouring tiles
// are one where their staging allows it, so that the plans may cut differently.
bool HasWeightsAsIn(const Plan& loaded, const Plan& plan) {
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    const std::vector<PlannedTensor>& tensors = plan.layers[layer].tensors;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
      const PlannedTensor& in_memory = loaded.layers[layer].tensors[index];
      const auto has = [&](const WeightTile& tile) { return HasTile(in_memory, tile); };
      if (!std::ranges::all_of(tensors[index].tiles, has)) return false;
    }
  }
  return loaded.weight_bytes == plan.weight_bytes;
}

}  // namespace

LoadedModel::LoadedModel(const RunInputs& inputs, ProgressLine& line)
    : inputs_(inputs),
      pool_(inputs.plan.machine.num_threads),
      arena_bytes_(inputs.plan.arena_bytes),
      origin_{*inputs.model.checkpoint, inputs.model.weights, inputs.model.choice.nonfinite} {
  const OpenedModel& model = inputs.model;
  RefuseMoreThanThereIs(inputs.plan, inputs.device);
  if (inputs.plan.PlannedBytes(Tier::kDisk) > 0) MakeIfUserTemporary(inputs.offload_folder);
  RemoveStaleParts(inputs.offload_folder);
  line.Note("loading weights");
  const WeightReader reader(*model.checkpoint, model.weights, model.choice.nonfinite,
                            pool_.num_threads());
  disk_ = DiskOf(inputs, PrepareStore(inputs, reader, pool_, line));
  if (model.store.empty()) disk_.origin = &origin_;
  tiers_.emplace(inputs.plan, disk_, inputs.device);
  if (tiers_->SpillsToMemory()) {
    line.Warn(
        fmt::format("{}: is a filesystem in memory, so that what is offloaded comes on top of "
                    "--cpu-memory; give --offload-dir a folder on a disk",
                    Printable(inputs.offload_folder.string())));
  }
  LoadTiers(inputs, reader, *tiers_, pool_);
}

void LoadedModel::Run(const Plan& plan, const Schedule& schedule, Job& job,
                      const ProgressFn& progress, EngineTotals& totals) {
  for (const Tier tier : kAllTiers) {
    SPILLWAY_CHECK(plan.weight_bytes[tier] == inputs_.plan.weight_bytes[tier]);
    SPILLWAY_CHECK(plan.arena_bytes[tier] <= arena_bytes_[tier]);
  }
  Mover mover(plan, *tiers_, inputs_.trace_log);
  const std::unique_ptr<Executor> executor = inputs_.device.MakeExecutor(
      plan, {tiers_->arena(Tier::kGpu), tiers_->arena(Tier::kCpu)}, pool_);
  const Beginnings beginnings = plan.SharesBeginnings() ? inputs_.beginnings : Beginnings::kApart;
  BlockBuilder blocks(plan, {inputs_.model.tokenizer.get(), inputs_.seed, beginnings});
  Engine engine(plan, mover, *executor, pool_, totals, inputs_.trace_log);
  engine.Run(schedule, blocks, job, progress);
}

void LoadedModel::Fit(const Plan& plan) {
  SPILLWAY_CHECK(HasWeightsAsIn(inputs_.plan, plan));
  tiers_->Fit(plan, disk_);
  arena_bytes_[Tier::kDisk] = plan.arena_bytes[Tier::kDisk];
}

double LoadedModel::MeasureStore() const {
  const Plan& plan = inputs_.plan;
  const bool to_cpu = plan.device() == Tier::kCpu;
  const Region& memory = to_cpu ? plan.weight_staging : plan.bounce.weights_in.region;
  return MeasureStoreReads(*tiers_->store(), *tiers_->queue(),
                           tiers_->arena(Tier::kCpu).View(memory));
}

uint64_t LoadedModel::Pulse() const {
  const DiskQueue* queue = tiers_->queue();
  if (queue == nullptr) return pool_.Pulse();
  return pool_.Pulse() + static_cast<uint64_t>(queue->totals(DiskOp::kRead).bytes +
                                               queue->totals(DiskOp::kWrite).bytes);
}

}  // namespace spillway
