#include "policies/search/placement_lp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "policies/cost/compute_seconds.h"
#include "policies/cost/cost_model.h"
#include "spillway/error.h"

namespace spillway {
namespace {

// Variables: the share of each class in each tier, then the seconds of a pass of each kind.
constexpr std::size_t kNumClasses = 3;
constexpr std::size_t kNumShares = kNumClasses * 3;
constexpr std::size_t kNumPassKinds = 2;
constexpr std::size_t kNumVariables = kNumShares + kNumPassKinds;
constexpr std::array<std::string_view, kNumPassKinds> kPassNames = {"prefill", "decode"};

// Rows: the sum of each class, the memory of each tier, then for each kind of pass its links, the
// disk with all that it reads and writes, its computes, and what is the CPU's beside a GPU.
constexpr std::size_t kMemoryRow = kNumClasses;
constexpr std::size_t kTimeRow = kMemoryRow + 3;
constexpr std::size_t kDiskRow = kAllLinks.size();  // of a pass
constexpr std::size_t kComputeRow = kDiskRow + 1;
constexpr std::size_t kCpuRow = kComputeRow + 1;
constexpr std::size_t kCpuMemoryRow = kCpuRow + 1;
constexpr std::size_t kRowsOfPass = kCpuMemoryRow + 1;

constexpr double kBytesUnit = 1 << 30;  // keeps the coefficients within a few orders of magnitude

// Cost of slower tiers, so that of placements that take the same time the one in faster tiers wins,
// for it moves less.
constexpr std::array<double, 3> kSlowTierCost = {0.0, 1e-4, 2e-4};

// Cost of missing bytes. Where several tiers could make up for them, the slowest one is the easiest
// to enlarge.
constexpr std::array<double, 3> kShortageCost = {4.0, 2.0, 1.0};

// Enough of a model for staging to be packed as in all of it: with fewer blocks the runs of layers
// that meet around the end of a pass find room that they do not have between others.
constexpr int64_t kSkeletonBlocks = 4;

constexpr std::size_t Index(std::size_t kind, Tier tier) {
  return kind * 3 + static_cast<std::size_t>(tier);
}

// Share that a solver's rounding left beside 0 or 1.
double WholeWhereNearly(double share) {
  constexpr double kRounding = 1e-9;
  if (share < kRounding) return 0.0;
  return share > 1.0 - kRounding ? 1.0 : share;
}

PerTier<double>& ClassOf(Placement& placement, std::size_t kind) {
  return kind == 0 ? placement.weights : kind == 1 ? placement.kv : placement.activations;
}

// Mean of the requests.
RequestShape MeanOf(const Workload& work) {
  RequestShape sum;
  for (const RequestShape& row : work.sample) {
    sum.prompt_tokens += row.prompt_tokens;
    sum.max_new_tokens += row.max_new_tokens;
  }
  const auto count = static_cast<int64_t>(work.sample.size());
  return {std::max<int64_t>(1, sum.prompt_tokens / count),
          std::max<int64_t>(1, sum.max_new_tokens / count)};
}

// Budgets and windows of layers in one that keeps as much in all: a skeleton has fewer layers.
KvPolicy EvenBudget(const KvPolicy& kv, int64_t num_blocks, int64_t row_tokens) {
  if (kv.layer_budgets.empty() && kv.head_budgets.empty() && kv.layer_windows.empty()) return kv;
  const int64_t heads = kv.head_budgets.empty() ? 1 : std::ssize(kv.head_budgets.front());
  int64_t slots = 0;
  for (int64_t decoder_layer = 0; decoder_layer < num_blocks; ++decoder_layer) {
    for (int64_t head = 0; head < heads; ++head)
      slots += KeepOf(kv, {decoder_layer, head}, row_tokens).slots();
  }
  KvPolicy even = kv;
  even.layer_budgets.clear();
  even.head_budgets.clear();
  even.layer_windows.clear();
  even.budget = {{0.0, slots / (num_blocks * heads)}, {}, {}};
  return even;
}

// Mean of the layers, of a row's prompt.
int64_t MeanPromptPairs(const KvPolicy& kept, int64_t num_blocks, const RequestShape& row) {
  int64_t pairs = 0;
  for (int64_t decoder_layer = 0; decoder_layer < num_blocks; ++decoder_layer)
    pairs += PromptPairs(row.prompt_tokens, KeepOf(kept, {decoder_layer, 0}, row.slots()).window);
  return pairs / num_blocks;
}

Tier TierOf(const PerTier<double>& share) {
  return *std::ranges::max_element(kAllTiers, {}, [&](Tier tier) { return share[tier]; });
}

// Few layers, without their windows: EvenBudget counts those of all.
Model SkeletonOf(ModelShape shape) {
  shape.num_layers = std::min(shape.num_layers, kSkeletonBlocks);
  Model skeleton = MakeModel(std::move(shape));
  for (LayerSpec& layer : skeleton.layers) {
    for (Op& op : layer.ops) {
      if (auto* attend = std::get_if<Attend>(&op)) attend->window = 0;
    }
  }
  return skeleton;
}

// A task's moves, as often as it occurs.
void AddMove(const CostModel& model, const BatchLoad& load, const Task& task, double times,
             PerLink<double>& seconds) {
  const PerLink<int64_t> bytes = model.Bytes(task, load);
  for (const Link link : kAllLinks) {
    seconds[link] += times * model.Seconds(link, task.kind, bytes[link]);
  }
}

std::string_view TimeRowName(std::size_t row_of_pass) {
  constexpr std::array<std::string_view, kRowsOfPass - kDiskRow> kNames = {
      "disk", "compute", "cpu attention", "cpu memory's rate"};
  return row_of_pass < kDiskRow ? LinkName(kAllLinks[row_of_pass]) : kNames[row_of_pass - kDiskRow];
}

// Seconds that each limit is worth, and its name.
using LimitCosts = std::vector<std::pair<double, std::string>>;

// Solution in which memory may be exceeded and nothing else costs: what each tier lacks comes
// behind the variables.
LpSolution LeastShortage(LinearProgram program) {
  std::ranges::fill(program.cost, 0.0);
  for (LpRow& row : program.rows) row.coefficients.resize(kNumVariables + 3, 0.0);
  for (std::size_t tier = 0; tier < 3; ++tier) {
    program.rows[kMemoryRow + tier].coefficients[kNumVariables + tier] = -1.0;
    program.cost.push_back(kShortageCost[tier]);
    program.low.push_back(0.0);
    program.high.push_back(std::numeric_limits<double>::infinity());
  }
  std::optional<LpSolution> solution = spillway::Solve(program);
  SPILLWAY_CHECK(solution.has_value());
  return *std::move(solution);
}

// Names of those that are worth naming, most costly first.
std::string NamesOfLargest(LimitCosts costs, double block_s) {
  std::ranges::stable_sort(costs, std::greater<>(), &std::pair<double, std::string>::first);
  constexpr double kWorthNaming = 0.01;
  std::string names;
  for (const auto& [cost, name] : costs) {
    if (cost < kWorthNaming * block_s) break;
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace

PlacementLp::PlacementLp(const Model& model, const Machine& machine, const Workload& work,
                         const Policy& policy, const KernelNeeds& needs)
    : num_blocks_(model.shape.num_layers),
      skeleton_(SkeletonOf(model.shape)),
      machine_(machine),
      work_(Repeated(work,
                     std::max(static_cast<int64_t>(work.sample.size()), policy.gpu_batch_size))),
      prefix_tokens_(HoldsPrefix(model, machine, work, policy) ? std::ssize(work.prefix) : 0),
      policy_(policy),
      needs_(needs) {
  const KvPolicy kept = WithWindows(policy.kv, WindowsOf(model), work.longest.slots());
  evicts_ = kept.evicts();
  const RequestShape mean = MeanRow();
  policy_.num_gpu_batches = 1;
  policy_.kv = EvenBudget(kept, num_blocks_, mean.slots());
  const RequestShape whole = MeanOf(work);
  const RequestShape prefix = {std::min(prefix_tokens_, whole.prompt_tokens - 1)};
  prompt_pairs_ =
      MeanPromptPairs(kept, num_blocks_, whole) - MeanPromptPairs(kept, num_blocks_, prefix);
  decode_passes_ = static_cast<double>(mean.max_new_tokens - 1);
  const PerTier<double> home = AllOn(machine.device);
  base_ = SampleAt({home, home, home});
  for (std::size_t kind = 0; kind < kNumClasses; ++kind) {
    for (const Tier tier : kAllTiers) {
      Placement corner = {home, home, home};
      ClassOf(corner, kind) = AllOn(tier);
      at_corner_[kind][tier] = tier == machine.device ? base_ : SampleAt(corner);
    }
  }
}

// As plans have it: without the prefix, or with tokens of it that are not fed.
RequestShape PlacementLp::MeanRow() const {
  RequestShape mean = MeanOf(work_);
  const int64_t num_tokens = std::min(prefix_tokens_, mean.prompt_tokens - 1);
  (evicts_ ? mean.prefix_tokens : mean.prompt_tokens) += evicts_ ? num_tokens : -num_tokens;
  return mean;
}

PlacementLp::Sample PlacementLp::SampleAt(const Placement& placement) const {
  Policy policy = policy_;
  policy.weight_frac = placement.weights;
  policy.kv_frac = placement.kv;
  policy.activation_frac = placement.activations;
  const Plan plan = LayOutWhole(skeleton_, machine_, work_, policy, needs_);
  const CostModel model(plan, RatesOf(machine_));

  Sample sample;
  AddBytes(plan, placement, sample);
  const RequestShape mean = MeanRow();
  const auto middle =
      mean.prompt_tokens + std::max<int64_t>(1, static_cast<int64_t>(decode_passes_) / 2);
  for (std::size_t pass = 0; pass < kNumPassKinds; ++pass) {
    const RowGroup rows = {mean, pass == 0 ? 0 : middle, TierOf(placement.kv),
                           TierOf(placement.activations), plan.batch.rows};
    BatchLoad load = LoadOf(plan, std::span(&rows, 1));
    if (pass == 0) load.kv.front()[rows.kv_tier].prompt_pairs = rows.count * prompt_pairs_;
    sample.passes[pass] = CostOfPass(model, load, pass);
  }
  return sample;
}

void PlacementLp::AddBytes(const Plan& plan, const Placement& placement, Sample& sample) const {
  const int64_t skeleton_blocks = skeleton_.shape.num_layers;
  const auto more_blocks = static_cast<double>(num_blocks_ - skeleton_blocks);
  const auto blocks = static_cast<double>(num_blocks_);
  for (const PlannedLayer& layer : plan.layers) {
    if (layer.decoder_layer != 0) continue;
    for (const PlannedTensor& tensor : layer.tensors) {
      sample.fixed_bytes[TierOf(placement.weights)] +=
          more_blocks * static_cast<double>(tensor.spec.bytes());
    }
  }
  sample.fixed_bytes[plan.device()] +=
      more_blocks * static_cast<double>(plan.prefix.kv.bytes + plan.prefix.scores.bytes) /
      static_cast<double>(skeleton_blocks);
  for (const Tier tier : kAllTiers) {
    const int64_t kv = plan.kv[tier].region.bytes;
    const int64_t hidden = plan.hidden[tier].region.bytes;
    const int64_t log = tier == Tier::kDisk ? plan.KvLogBytes() : 0;
    sample.fixed_bytes[tier] += static_cast<double>(plan.PlannedBytes(tier) - kv - log - hidden);
    sample.batch_bytes[tier] =
        static_cast<double>(kv + log) * blocks / static_cast<double>(skeleton_blocks) +
        static_cast<double>(hidden);
  }
}

PlacementLp::PassCost PlacementLp::CostOfPass(const CostModel& model, const BatchLoad& load,
                                              std::size_t pass) const {
  const Plan& plan = model.plan();
  PassCost cost;
  const int64_t attends = AddLayers(model, load, cost);
  if (KvLeavesGpu(machine_, policy_)) AddCpuAttention(model, load, cost);
  // The first pass, or as many as it takes until a row is written whole again.
  const int64_t first = pass == 0 ? 0 : plan.kv_log.passes;
  const int64_t passes = pass == 0 ? 1 : plan.kv_log.passes;
  const double times = static_cast<double>(num_blocks_) / static_cast<double>(passes);
  for (const TaskKind kind : {TaskKind::kLoadKv, TaskKind::kStoreKv}) {
    for (int64_t at = first; at < first + passes; ++at) {
      AddMove(model, load, {kind, {at, attends, 0}}, times, cost.kv_s);
    }
  }
  return cost;
}

int64_t PlacementLp::AddLayers(const CostModel& model, const BatchLoad& load,
                               PassCost& cost) const {
  const Plan& plan = model.plan();
  const int64_t num_layers = std::ssize(plan.layers);
  const auto block_of = [&](int64_t layer) {
    return plan.layers[static_cast<std::size_t>(layer)].decoder_layer;
  };
  int64_t attends = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (block_of(layer) > 0) continue;
    const double times = block_of(layer) == 0 ? static_cast<double>(num_blocks_) : 1.0;
    const Cursor at = {0, layer, 0};
    AddMove(model, load, {TaskKind::kLoadWeights, at}, times, cost.weights_s);
    // States stay where they are between a block's layers.
    const bool ends = layer + 1 < num_layers && block_of(layer + 1) != block_of(layer);
    const bool begins = layer > 0 && block_of(layer - 1) != block_of(layer);
    if (ends) AddMove(model, load, {TaskKind::kStoreHidden, at}, times, cost.hidden_s);
    if (begins) AddMove(model, load, {TaskKind::kLoadHidden, at}, times, cost.hidden_s);
    if (plan.layers[static_cast<std::size_t>(layer)].attends) attends = layer;
    UnitSeconds units = model.Compute(layer, load);
    if (plan.AttendsBeside()) units[CostUnit::kCpuAttention] = 0.0;
    cost.compute_s += times * units.total_s();
  }
  return attends;
}

void PlacementLp::AddCpuAttention(const CostModel& model, const BatchLoad& load,
                                  PassCost& cost) const {
  const Plan& plan = model.plan();
  const PerTier<KvLoad>& kv = load.KvOf(plan, 0);
  const auto blocks = static_cast<double>(num_blocks_);
  const double memory = model.rates().cpu.memory_bytes_per_s;
  const auto memory_s = [memory](int64_t bytes) { return static_cast<double>(bytes) / memory; };
  cost.cpu_attention_s = blocks * CpuAttentionSeconds(plan, model.rates(), kv, 0);
  if (!load.prefills()) cost.cpu_attention_s += blocks * HostRowsSeconds(plan, model.rates(), kv);
  cost.kv_memory_s =
      blocks * memory_s(CpuAttentionBytes(plan, kv) + KvInBytes(plan, kv)[Link::kDiskRead]);
  cost.weights_memory_s = blocks * memory_s(model.TrafficBytes(1));
}

// sum over the shares of (what it is in that corner - what it is at the base) <= -(the base).
template <typename F>
LpRow PlacementLp::RowOf(F value_of) const {
  LpRow row;
  row.coefficients.assign(kNumVariables, 0.0);
  const double base = value_of(base_);
  for (std::size_t kind = 0; kind < kNumClasses; ++kind) {
    for (const Tier tier : kAllTiers) {
      row.coefficients[Index(kind, tier)] = value_of(at_corner_[kind][tier]) - base;
    }
  }
  row.limit = -base;
  return row;
}

void PlacementLp::AddShareRows(const Limits& limits, LinearProgram& program) const {
  const std::array fixed = {limits.weights, limits.kv, limits.activations};
  for (std::size_t kind = 0; kind < kNumClasses; ++kind) {
    LpRow row;
    row.coefficients.assign(kNumVariables, 0.0);
    row.sense = RowSense::kEqual;
    row.limit = 1.0;
    for (const Tier tier : kAllTiers) {
      row.coefficients[Index(kind, tier)] = 1.0;
      const bool usable = limits.cap_bytes[tier] > 0 &&
                          !(kind == 1 && tier == Tier::kGpu && KvLeavesGpu(machine_, policy_));
      program.low.push_back(fixed[kind] ? (*fixed[kind])[tier] : 0.0);
      program.high.push_back(fixed[kind] ? (*fixed[kind])[tier] : usable ? 1.0 : 0.0);
    }
    program.rows.push_back(row);
  }
}

void PlacementLp::AddMemoryRows(const Limits& limits, LinearProgram& program) const {
  for (const Tier tier : kAllTiers) {
    LpRow row = RowOf([&](const Sample& sample) {
      return (sample.fixed_bytes[tier] +
              static_cast<double>(limits.num_batches) * sample.batch_bytes[tier]) /
             kBytesUnit;
    });
    row.limit += static_cast<double>(limits.cap_bytes[tier]) / kBytesUnit;
    program.rows.push_back(row);
  }
}

void PlacementLp::AddLinkRows(const Limits& limits, std::size_t pass,
                              LinearProgram& program) const {
  const auto batches = static_cast<double>(limits.num_batches);
  const auto link_s = [&](const Sample& sample, Link link) {
    const PassCost& cost = sample.passes[pass];
    // The states of a single batch stay where they are computed.
    const double hidden_s = limits.num_batches > 1 ? cost.hidden_s[link] : 0.0;
    return cost.weights_s[link] + batches * (cost.kv_s[link] + hidden_s);
  };
  for (const Link link : kAllLinks) {
    program.rows.push_back(RowOf([&](const Sample& sample) { return link_s(sample, link); }));
  }
  program.rows.push_back(RowOf([&](const Sample& sample) {
    return (link_s(sample, Link::kDiskRead) + link_s(sample, Link::kDiskWrite)) /
           (2.0 * machine_.rates.disk_both_frac);
  }));
}

void PlacementLp::AddTimeRows(const Limits& limits, LinearProgram& program) const {
  const auto batches = static_cast<double>(limits.num_batches);
  for (std::size_t pass = 0; pass < kNumPassKinds; ++pass) {
    AddLinkRows(limits, pass, program);
    // A single batch has nothing for the GPU to do while the CPU attends to it.
    program.rows.push_back(RowOf([&](const Sample& sample) {
      const PassCost& cost = sample.passes[pass];
      const double waits_s = limits.num_batches > 1 ? 0.0 : cost.cpu_attention_s;
      return batches * (cost.compute_s + waits_s);
    }));
    program.rows.push_back(
        RowOf([&](const Sample& sample) { return batches * sample.passes[pass].cpu_attention_s; }));
    program.rows.push_back(RowOf([&](const Sample& sample) {
      const PassCost& cost = sample.passes[pass];
      return cost.weights_memory_s + batches * cost.kv_memory_s;
    }));
    for (std::size_t row = program.rows.size() - kRowsOfPass; row < program.rows.size(); ++row) {
      program.rows[row].coefficients[kNumShares + pass] = -1.0;
    }
  }
}

LinearProgram PlacementLp::Program(const Limits& limits, Store store) const {
  LinearProgram program;
  AddShareRows(limits, program);
  AddMemoryRows(limits, program);
  AddTimeRows(limits, program);
  constexpr std::size_t kStored = Index(0, Tier::kDisk);
  if (store == Store::kWhole) {
    LpRow& disk = program.rows[kMemoryRow + static_cast<std::size_t>(Tier::kDisk)];
    disk.limit -= std::exchange(disk.coefficients[kStored], 0.0);
  } else if (store == Store::kNone) {
    program.high[kStored] = program.low[kStored];
  }
  program.low.resize(kNumVariables, 0.0);
  program.high.resize(kNumVariables, std::numeric_limits<double>::infinity());
  program.cost.assign(kNumVariables, 0.0);
  program.cost[kNumShares] = 1.0;
  program.cost[kNumShares + 1] = decode_passes_;
  const double scale = base_.passes[0].compute_s + decode_passes_ * base_.passes[1].compute_s;
  for (std::size_t share = 0; share < kNumShares; ++share) {
    program.cost[share] = scale * kSlowTierCost[share % 3];
  }
  return program;
}

// A store on disk holds all weights, however few are read from it. That is no linear cost: where
// disk space is short, either all of it is paid or no weight lies there.
std::optional<PlacementAnswer> PlacementLp::Solve(const Limits& limits) const {
  const LinearProgram shares = Program(limits, Store::kByShare);
  const std::optional<LpSolution> by_share = spillway::Solve(shares);
  if (!by_share) return std::nullopt;
  const LinearProgram whole = Program(limits, Store::kWhole);
  const LpRow& disk = whole.rows[kMemoryRow + static_cast<std::size_t>(Tier::kDisk)];
  const double used =
      std::inner_product(by_share->x.begin(), by_share->x.end(), disk.coefficients.begin(), 0.0);
  const double on_disk = WholeWhereNearly(by_share->x[Index(0, Tier::kDisk)]);
  if (on_disk == 0.0 || used <= disk.limit) return AnswerOf(*by_share);
  const std::optional<LpSolution> with = spillway::Solve(whole);
  const LinearProgram none = Program(limits, Store::kNone);
  const std::optional<LpSolution> without = spillway::Solve(none);
  if (!with && !without) return std::nullopt;
  if (!without || (with && with->cost < without->cost)) return AnswerOf(*with);
  return AnswerOf(*without);
}

PlacementAnswer PlacementLp::AnswerOf(const LpSolution& solution) const {
  PlacementAnswer answer;
  for (std::size_t kind = 0; kind < kNumClasses; ++kind) {
    for (const Tier tier : kAllTiers) {
      ClassOf(answer.placement, kind)[tier] = WholeWhereNearly(solution.x[Index(kind, tier)]);
    }
  }
  answer.block_s = solution.x[kNumShares] + decode_passes_ * solution.x[kNumShares + 1];

  LimitCosts costs;
  for (const Tier tier : kAllTiers) {
    const std::size_t row = kMemoryRow + static_cast<std::size_t>(tier);
    costs.emplace_back(-solution.duals[row],
                       std::string(TierName(tier)) + (tier == Tier::kDisk ? " space" : " memory"));
  }
  for (std::size_t pass = 0; pass < kNumPassKinds; ++pass) {
    const double pass_s = solution.x[kNumShares + pass];
    for (std::size_t of_pass = 0; of_pass < kRowsOfPass; ++of_pass) {
      const double dual = -solution.duals[kTimeRow + pass * kRowsOfPass + of_pass];
      costs.emplace_back(dual * pass_s,
                         fmt::format("{} {}", kPassNames[pass], TimeRowName(of_pass)));
    }
  }
  answer.bound_by = NamesOfLargest(std::move(costs), answer.block_s);
  return answer;
}

Shortage PlacementLp::ShortageOf(const Limits& limits) const {
  // As in Solve, the store on disk is whole or there is none.
  const LpSolution with = LeastShortage(Program(limits, Store::kWhole));
  const LpSolution without = LeastShortage(Program(limits, Store::kNone));
  const LpSolution& least = with.cost < without.cost ? with : without;
  Shortage shortage;
  for (const Tier tier : kAllTiers) {
    const double missing = least.x[kNumVariables + static_cast<std::size_t>(tier)];
    shortage.bytes[tier] = static_cast<int64_t>(std::ceil(missing * kBytesUnit));
  }
  return shortage;
}

}  // namespace spillway
