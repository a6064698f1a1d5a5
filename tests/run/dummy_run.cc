#include "tests/run/dummy_run.h"

#include "src/checkpoint/dummy.h"
#include "src/compute/host_device.h"
#include "src/store/load_weights.h"
#include "src/store/make_store.h"
#include "src/tokenizer/no_tokenizer.h"

namespace spillway {

ModelShape SmallOpt(int64_t num_layers) {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.num_layers = num_layers;
  shape.hidden_size = shape.embed_size = 64;
  shape.ffn_size = 128;
  shape.num_heads = shape.num_kv_heads = 4;
  shape.head_dim = 16;
  shape.vocab_size = 96;
  shape.max_positions = 128;
  return shape;
}

DummyRun::DummyRun(const ModelShape& shape, int num_threads, const std::filesystem::path& root)
    : folder_(root),
      model_(MakeModel(shape)),
      checkpoint_(MakeDummyCheckpoint(model_, 1)),
      map_(ResolveWeights(model_, *checkpoint_)),
      pool_(num_threads),
      reader_(*checkpoint_, map_, NonFiniteWeights::kRefuse, num_threads) {
  EnsureStore({model_, "0123456789abcdef", reader_, {}}, folder_ / "weights.store", pool_, {}, {});
}

Plan DummyRun::PlanFor(Machine machine, const Workload& work, const Policy& policy) const {
  machine.num_threads = pool_.num_threads();
  for (const Tier tier : kAllTiers) machine.cap_bytes[tier] = int64_t{1} << 40;
  return MakePlan(model_, machine, work, policy, HostDevice().needs());
}

Trace DummyRun::Run(const Plan& plan, Device& device, Job& job, const DummyRunOptions& options) {
  DiskOptions disk;
  disk.folder = folder_.path();
  disk.store = folder_ / "weights.store";
  const Tiers tiers(plan, disk, device);
  for (const Tier tier : {Tier::kGpu, Tier::kCpu}) {
    LoadWeights(plan, tier, reader_, tiers.arena(tier), pool_);
  }
  Mover mover(plan, tiers);
  std::unique_ptr<Executor> executor =
      device.MakeExecutor(plan, {tiers.arena(Tier::kGpu), tiers.arena(Tier::kCpu)}, pool_);
  if (options.wrap) executor = options.wrap(std::move(executor));
  const NoTokenizer tokenizer(plan.shape.vocab_size);
  BlockBuilder blocks(plan, {&tokenizer, 0});
  EngineTotals totals;
  Engine(plan, mover, *executor, pool_, totals)
      .Run(MakeSchedule(plan, options.overlap), blocks, job, options.progress);
  return totals.trace;
}

}  // namespace spillway
