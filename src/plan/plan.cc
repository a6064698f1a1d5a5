#include "spillway/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "spillway/error.h"
#include "spillway/round.h"
#include "src/base/size_text.h"
#include "src/memory/arena_layout.h"
#include "src/plan/cap_words.h"
#include "src/plan/place_rows.h"
#include "src/plan/place_weights.h"
#include "src/plan/place_workspace.h"
#include "src/plan/remedy.h"
#include "src/plan/size_rows.h"

namespace spillway {
namespace {

// Layers that weights are loaded ahead of their compute. A load then hides behind the computes of
// two layers, of which one is an attention and one an MLP: with one layer ahead the disk rests in
// every MLP that outlasts an attention's load.
constexpr int64_t kWeightLookahead = 2;

// Whether each layer that attends rotates keys, and rows of every length alike.
bool RotatesAlike(const std::vector<PlannedLayer>& layers) {
  return std::ranges::all_of(layers, [](const PlannedLayer& layer) {
    const Rope* rope = RopeOf(layer.ops);
    return !layer.attends || (rope != nullptr && !rope->scaling.depends_on_length());
  });
}

Plan LayOutOnce(const Model& model, const Machine& machine, const Workload& whole,
                const Policy& policy, const KernelNeeds& needs) {
  Plan plan;
  plan.shape = model.shape;
  plan.machine = machine;
  plan.policy = policy;
  plan.kept = WithWindows(policy.kv, WindowsOf(model), whole.longest.slots());
  if (HoldsPrefix(model, machine, whole, policy)) plan.prefix.tokens = whole.prefix;
  const Workload work = OwnWork(plan, whole);
  SizeRows(plan, work);
  plan.order = OrderOf(plan);
  plan.weight_lookahead = kWeightLookahead;

  ArenaLayouts arenas;
  PlacedWeights weights = PlaceWeights(model, policy.weight_frac, plan.device(),
                                       {plan.order, plan.weight_lookahead}, arenas);
  plan.weight_bytes = weights.bytes;
  plan.layers = std::move(weights.layers);
  plan.centres_keys = plan.TurnsKeys() && RotatesAlike(plan.layers);
  plan.weight_staging = arenas[plan.device()].TakeBlocks(weights.staging_bytes);
  PlaceStaging(plan.layers, plan.device(), plan.weight_staging.offset);
  PlaceRows(plan, arenas);
  PlacePrefix(plan, arenas[plan.device()]);
  PlaceKvLog(plan, work, arenas[Tier::kCpu]);
  arenas[Tier::kDisk].Take(plan.KvLogBytes());
  PlaceWorkspace(plan, needs, arenas);
  for (const Tier tier : kAllTiers) plan.arena_bytes[tier] = arenas[tier].end();
  plan.table_bytes = TableBytes(plan, needs);
  return plan;
}

}  // namespace

std::vector<Rope> RopesOf(const std::vector<PlannedLayer>& layers) {
  std::vector<Rope> ropes;
  for (const PlannedLayer& layer : layers) {
    const Rope* rope = RopeOf(layer.ops);
    if (rope != nullptr && std::ranges::find(ropes, *rope) == ropes.end()) ropes.push_back(*rope);
  }
  return ropes;
}

Plan LayOutWhole(const Model& model, const Machine& machine, const Workload& work,
                 const Policy& policy, const KernelNeeds& needs) {
  Plan plan = LayOutOnce(model, machine, work, policy, needs);
  while (plan.kv_log.exists() && !Fits(plan)) {
    Policy shorter = policy;
    shorter.most_log_passes = std::max<int64_t>(1, plan.kv_log.passes / 2);
    plan = LayOutOnce(model, machine, work, shorter, needs);
  }
  return plan;
}

bool HoldsPrefix(const Model& model, const Machine& machine, const Workload& work,
                 const Policy& policy) {
  return !work.prefix.empty() && !model.shape.rope.scaling.depends_on_length() &&
         !(machine.has_gpu() && policy.cpu_attention);
}

Workload OwnWork(const Plan& plan, Workload work) {
  for (RequestShape& request : work.sample) request = plan.OwnShape(request);
  work.longest = plan.OwnShape(work.longest);
  return work;
}

namespace {

int64_t ExcessOf(const Plan& plan) {
  int64_t bytes = 0;
  for (const Tier tier : kAllTiers) bytes += plan.Excess(tier);
  return bytes;
}

}  // namespace

// Rows that hold their prompts themselves may hold them elsewhere.
Plan LayOut(const Model& model, const Machine& machine, const Workload& work, const Policy& policy,
            const KernelNeeds& needs) {
  constexpr std::size_t kLeastPart = 8;  // of the prefix that is worth a try
  Plan whole = LayOutWhole(model, machine, work, policy, needs);
  if (whole.prefix.tokens.empty() || Fits(whole)) return whole;
  Workload shorter = work;
  for (std::size_t part = 2; !shorter.prefix.empty(); part *= 2) {
    const std::size_t steps = part > kLeastPart ? 0 : work.prefix.size() / part / kPrefixStep;
    shorter.prefix.resize(steps * kPrefixStep);
    Plan plan = LayOutWhole(model, machine, shorter, policy, needs);
    if (Fits(plan) || (shorter.prefix.empty() && ExcessOf(plan) < ExcessOf(whole))) return plan;
  }
  return whole;
}

int64_t Plan::StrideOf(Buf buf) const {
  constexpr int64_t kAligned = 4;  // floats, as the GPU's products want their results
  const int64_t width = WidthOf(shape, buf);
  return machine.has_gpu() && buf == Buf::kLogits ? RoundUp(width, kAligned) : width;
}

int64_t Plan::KvBytes() const {
  int64_t slots = 0;
  for (const Tier tier : kAllTiers) slots += kv_begin[tier].back();
  return slots * slot_bytes * num_batches + prefix.kv.bytes;
}

int64_t Plan::KvLogBytes() const { return num_batches * shape.num_layers * kv_log.StagingBytes(); }

int64_t Plan::WeightBytes() const {
  return std::accumulate(weight_bytes.values.begin(), weight_bytes.values.end(), int64_t{0});
}

KvKeep Plan::RunKeep(int64_t kv_class, int64_t run, int64_t row_tokens) const {
  const KvClass& layers = kv_classes[static_cast<std::size_t>(kv_class)];
  return KeepOf(kept, {layers.first_decoder_layer, run}, row_tokens);
}

int64_t Plan::RunSlots(int64_t kv_class, int64_t run, int64_t row_tokens) const {
  return SlotsOf(RunKeep(kv_class, run, row_tokens), row_tokens);
}

int64_t Plan::RowSlots(Tier tier, int64_t kv_class, int64_t row_tokens) const {
  int64_t slots = 0;
  for (int64_t run = 0; run < KvRuns(); ++run) slots += RunSlots(kv_class, run, row_tokens);
  return RoundUp(slots, slot_align[tier]);
}

int64_t Plan::LargestKvClass(int64_t row_tokens) const {
  int64_t largest = 0;
  for (int64_t kv_class = 1; kv_class < std::ssize(kv_classes); ++kv_class) {
    // Any tier's rounding gives the same order: the disk's is a multiple of memory's.
    const auto slots = [&](int64_t of) { return RowSlots(Tier::kCpu, of, row_tokens); };
    if (slots(kv_class) > slots(largest)) largest = kv_class;
  }
  return largest;
}

KvKeep Plan::MostRunKeep(int64_t row_tokens) const {
  KvKeep most;
  for (int64_t kv_class = 0; kv_class < std::ssize(kv_classes); ++kv_class) {
    for (int64_t run = 0; run < KvRuns(); ++run) {
      const KvKeep keep = RunKeep(kv_class, run, row_tokens);
      if (keep.slots() > most.slots()) most = keep;
    }
  }
  return most;
}

int64_t Plan::MostRunSlots(int64_t row_tokens) const {
  return SlotsOf(MostRunKeep(row_tokens), row_tokens);
}

int64_t Plan::HeadSlots(int64_t largest_layer, int64_t all_layers) const {
  if (kept.head_budgets.empty()) return DivideUp(largest_layer, KvRuns());
  return DivideUp(all_layers, KvRuns() * std::ssize(kv_class_of));
}

int64_t Plan::MostHeadSlots(int64_t row_tokens) const {
  int64_t most = 0;
  for (const Tier tier : kAllTiers) {
    if (kv[tier].rows == 0) continue;
    int64_t largest = 0;
    int64_t all = 0;
    for (const int64_t kv_class : kv_class_of) {
      const int64_t slots = RowSlots(tier, kv_class, row_tokens);
      largest = std::max(largest, slots);
      all += slots;
    }
    most = std::max(most, HeadSlots(largest, all));
  }
  return most;
}

int64_t Plan::KvSlots(Tier tier, int64_t decoder_layer) const {
  const auto at = static_cast<std::size_t>(decoder_layer);
  return kv_begin[tier][at + 1] - kv_begin[tier][at];
}

int64_t Plan::KvOffset(Tier tier, int64_t batch, int64_t decoder_layer) const {
  const std::vector<int64_t>& begin = kv_begin[tier];
  return (batch * begin.back() + begin[static_cast<std::size_t>(decoder_layer)]) * slot_bytes;
}

namespace {

// Keys of 4 bits cost little where heads are turned.
void RefuseFourBitsOfRotatedKeys(const ModelShape& shape, const Policy& policy) {
  if (policy.kv_bits.key != 4 || HoldsKeysOf4Bits(shape)) return;
  throw Error(
      ErrorCode::kFlag,
      fmt::format("--kv-bits {}: keys of 4 bits that positions rotate need heads of a power "
                  "of two, up to 256, and those of {} have {}; choose 8,4 or 8",
                  KvBitsText(policy.kv_bits), Printable(shape.name, 40), shape.head_dim));
}

// Keys can be turned at another place than their position's where nothing but a rotation tells it,
// the same one for rows of every length, and where they are stored as they came.
void RefuseWhatCannotRoll(const Model& model, const Machine& machine, const Policy& policy) {
  if (!policy.kv.rolls) return;
  const ModelShape& shape = model.shape;
  const std::string name = Printable(shape.name, 40);
  const auto refuse = [](const std::string& reason) {
    throw Error(ErrorCode::kFlag,
                "a KV cache that rolls (--rolling, or \"rolling\" of the policy file): " + reason);
  };
  if (shape.rope.dims == 0)
    refuse(fmt::format("{} has learned positions, and no others than these; leave it out", name));
  if (shape.rope.scaling.depends_on_length())
    refuse(fmt::format("rotations of {} depend on a row's length, which has no end then", name));
  if (std::ranges::find(shape.unturned, true) != shape.unturned.end())
    refuse(fmt::format("layers of {} know no positions; leave it out", name));
  if (std::ranges::any_of(WindowsOf(model), [](int64_t window) { return window > 0; }))
    refuse(fmt::format("layers of {} have windows of their own; leave it out", name));
  const auto attends = [](const Op& op) { return std::holds_alternative<Attend>(op); };
  const bool one_rope = std::ranges::all_of(model.layers, [&](const LayerSpec& layer) {
    const Rope* rope = RopeOf(layer.ops);
    return std::ranges::none_of(layer.ops, attends) || (rope != nullptr && *rope == shape.rope);
  });
  if (!one_rope) refuse(fmt::format("not all layers of {} have the same rotation", name));
  if (policy.kv_bits.key == 4)
    refuse("keys of 4 bits are turned otherwise before they are stored; give --kv-bits 8,4 or 8");
  if (machine.has_gpu() && policy.cpu_attention)
    refuse("the CPU attends to none beside the gpu; give --no-cpu-attention");
}

}  // namespace

bool Fits(const Plan& plan) {
  return std::ranges::all_of(kAllTiers, [&](Tier tier) { return plan.Excess(tier) == 0; });
}

Plan MakePlan(const Model& model, const Machine& machine, const Workload& work,
              const Policy& policy, const KernelNeeds& needs) {
  RefuseFourBitsOfRotatedKeys(model.shape, policy);
  RefuseWhatCannotRoll(model, machine, policy);
  Plan plan = LayOut(model, machine, work, policy, needs);
  if (Fits(plan)) return plan;

  const Tier tier =
      *std::ranges::find_if(kAllTiers, [&](Tier candidate) { return plan.Excess(candidate) > 0; });
  const CapWords words = CapWordsOf(machine, tier);
  const int64_t needed = plan.PlannedBytes(tier);
  const int64_t kv_bytes = plan.KvBytesIn(tier);
  const int64_t rows_bytes = kv_bytes + plan.hidden[tier].region.bytes;
  // Weights on disk are the store of all weights, whatever memory holds of them.
  const int64_t weight_bytes = tier == Tier::kDisk ? needed - rows_bytes : plan.weight_bytes[tier];
  throw Error(
      words.code,
      fmt::format("needs {} of {} (weights {}, KV {}, activations and buffers {}), {} "
                  "available; {}",
                  SizeText(needed), words.noun, SizeText(weight_bytes), SizeText(kv_bytes),
                  SizeText(needed - weight_bytes - kv_bytes), SizeText(machine.cap_bytes[tier]),
                  RemedyFor({model, plan, work, needs})));
}

}  // namespace spillway
