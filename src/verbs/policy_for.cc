#include "src/verbs/policy_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "policies/cost/cost_model.h"
#include "policies/search/default_policy.h"
#include "spillway/error.h"
#include "src/base/isa.h"  // ComputeOf
#include "src/simulate/simulate.h"
#include "src/verbs/prediction_for.h"  // OverlapOf

namespace spillway {
namespace {

// Cells of a simulation among many: neighbouring passes are taken together.
constexpr int64_t kCellsOfACandidate = 20'000;

PerTier<double> ShareOf(double gpu_percent, double cpu_percent) {
  PerTier<double> frac;
  frac[Tier::kGpu] = gpu_percent / 100.0;
  frac[Tier::kCpu] = cpu_percent / 100.0;
  frac[Tier::kDisk] = (100.0 - gpu_percent - cpu_percent) / 100.0;
  return frac;
}

std::optional<Placement> StatedPlacement(const Config& config) {
  if (config.percent) {
    const std::array<double, 6>& percent = *config.percent;
    return Placement{ShareOf(percent[0], percent[1]), ShareOf(percent[2], percent[3]),
                     ShareOf(percent[4], percent[5])};
  }
  return config.policy ? config.policy->placement : std::nullopt;
}

bool PlacesOnGpu(const Placement& placement) {
  const auto& [weights, kv, activations] = placement;
  return weights[Tier::kGpu] + kv[Tier::kGpu] + activations[Tier::kGpu] > 0.0;
}

// Counts the flag alone: a policy file is for many machines, on some of which its cpu_attention has
// no effect.
bool AsksForCpuAttention(const Config& config) {
  const bool in_file = config.policy && config.policy->cpu_attention.value_or(false);
  return config.cpu_attention.value_or(false) && !in_file && !config.keeps_cpu_attention;
}

// Refuses what is stated of a GPU where there is none.
void RefuseWithoutGpu(const Config& config, const GivenPolicy& given) {
  if (given.placement && PlacesOnGpu(*given.placement)) {
    throw Error(config.percent ? ErrorCode::kFlag : ErrorCode::kPolicy,
                fmt::format("{} puts a share on the gpu, and there is none; --emulate-gpu SIZE "
                            "makes one",
                            config.percent ? "--percent" : "the policy file"));
  }
}

// See KvLeavesGpu. All of it there leaves the CPU nothing to attend to, which harms nothing.
void RefuseSharedAttention(const Config& config, const Machine& machine, const GivenPolicy& given) {
  if (!given.placement || !given.cpu_attention.value_or(false)) return;
  if (!SharesAttention(machine, given.placement->kv)) return;
  const std::string_view placed = config.percent ? "--percent" : "the policy file";
  if (config.keeps_cpu_attention) {
    throw Error(ErrorCode::kResume,
                fmt::format("--output: the CPU attended in the interrupted run, and {} puts a "
                            "share of the KV on the gpu; put none there",
                            placed));
  }
  throw Error(config.percent ? ErrorCode::kFlag : ErrorCode::kPolicy,
              fmt::format("{}: GPU and CPU round otherwise, and {} puts {:.3g} % of the KV on the "
                          "gpu, so that a row's tokens would depend on its place; put all of it "
                          "there or none, or give --no-cpu-attention",
                          AsksForCpuAttention(config) ? "--cpu-attention" : "cpu_attention", placed,
                          100.0 * given.placement->kv[Tier::kGpu]));
}

// Refuses --cpu-attention where the flags themselves leave the CPU nothing to attend to.
void CheckCpuAttention(const Config& config, const GivenPolicy& given) {
  if (!config.percent || !AsksForCpuAttention(config)) return;
  if (given.placement->kv[Tier::kGpu] < 1.0) return;
  throw Error(ErrorCode::kFlag,
              "--cpu-attention: attends to KV that is not on the gpu, and --percent puts all of "
              "it there; leave one of the two out");
}

// Budgets per layer or KV head are those of a model with as many. `place`: where they are stated.
void CheckKvBudgets(const KvPolicy& kv, const ModelShape& shape, std::string_view place) {
  const auto refuse = [&](std::string_view key, int64_t budgets, std::string_view of,
                          int64_t model) {
    throw Error(ErrorCode::kPolicy,
                fmt::format("{}.{}: has KV budgets for {} {}, {} has {}; calibrate this model",
                            place, key, budgets, of, Printable(shape.name), model));
  };
  const auto layers = std::ssize(kv.layer_budgets);
  if (layers != 0 && layers != shape.num_layers)
    refuse("layer_budgets", layers, "layers", shape.num_layers);
  if (kv.head_budgets.empty()) return;
  if (std::ssize(kv.head_budgets) != shape.num_layers)
    refuse("head_budgets", std::ssize(kv.head_budgets), "layers", shape.num_layers);
  const auto heads = std::ssize(kv.head_budgets.front());
  if (heads != shape.num_kv_heads)
    refuse("head_budgets", heads, "KV heads a layer", shape.num_kv_heads);
}

// The policy that flags and a policy file state.
GivenPolicy PolicyGivenBy(const Config& config, const ModelShape& shape, const Machine& machine) {
  CheckKvBudgets(config.kv, shape, "--policy: $.kv");
  GivenPolicy given;
  given.gpu_batch_size = config.gpu_batch_size;
  given.num_gpu_batches = config.num_gpu_batches;
  given.prefill_chunk = config.prefill_chunk;
  given.cpu_attention = config.cpu_attention;
  given.kv_dtype = config.kv_dtype;
  given.kv_bits = config.kv_bits;
  given.kv = config.kv;
  given.placement = StatedPlacement(config);
  if (machine.device == Tier::kGpu) {
    CheckCpuAttention(config, given);
    RefuseSharedAttention(config, machine, given);
    // With it, MakePlan refuses a cache that rolls.
    if (config.kv.rolls && !given.cpu_attention.has_value()) given.cpu_attention = false;
  } else {
    RefuseWithoutGpu(config, given);
  }
  return given;
}

// Settings of --calibration that lose no more than --max-loss. Throws: Error kPolicy: they are of
// another model.
std::vector<CalibratedKv> WithinLoss(const Config& config, const ModelShape& shape) {
  std::vector<CalibratedKv> within;
  for (const CalibratedKv& setting : config.calibration) {
    CheckKvBudgets(setting.kv, shape, "--calibration: $.calibration.tried.kv");
    if (setting.loss <= std::log1p(config.max_loss_frac)) within.push_back(setting);
  }
  return within;
}

// --allow-4bit varies what is not given. Products in int8 want codes.
std::vector<StorageChoice> StorageToTry(const Config& config, const ModelShape& shape,
                                        CpuCompute compute) {
  std::vector<int> all(kStoredBits.begin(), kStoredBits.end());
  if (compute == CpuCompute::kInt8) std::erase(all, 16);
  std::vector<KvBits> all_kv;
  // Else keys of 4 bits are refused.
  const bool any_keys = !config.kv.rolls && HoldsKeysOf4Bits(shape);
  std::ranges::copy_if(kStoredKvBits, std::back_inserter(all_kv),
                       [&](KvBits bits) { return any_keys || bits.key > 4; });
  const std::vector<int> weights =
      VariesWeights(config, shape) ? all : std::vector<int>{shape.weight_bits};
  if (!config.calibration.empty()) return CalibratedChoices(weights, WithinLoss(config, shape));
  const bool vary_kv = config.allow_4bit && !config.kv_bits && !config.kv_dtype;
  return StorageChoices(weights,
                        vary_kv ? all_kv : std::vector<KvBits>{config.kv_bits.value_or(16)},
                        config.kv_budgets);
}

}  // namespace

// A quantised store is of its own bits.
bool VariesWeights(const Config& config, const ModelShape& shape) {
  return config.allow_4bit && !config.weight_bits && shape.weight_bits == 16 &&
         !HoldsPublishedCodes(shape) && !config.allow_nonfinite_weights;
}

bool IsEndless(const Config& config) {
  return config.verb == Verb::kSearch && config.input.empty() && !config.num_requests;
}

SearchResult SearchFor(const Config& config, const Model& model, const Machine& machine,
                       const Workload& work, const KernelNeeds& needs) {
  const auto predict = [&config](const Plan& plan, const Workload& of_plan) {
    SimOptions options;
    options.overlap = OverlapOf(config);
    options.max_cells = kCellsOfACandidate;
    return Simulate(plan, of_plan, options).prediction;
  };
  return SearchPolicies(
      {model, machine, work, PolicyGivenBy(config, model.shape, machine), needs, predict,
       StorageToTry(config, model.shape, kernels::ComputeOf(machine.isa)), IsEndless(config)});
}

Policy PolicyFor(const Config& config, const Model& model, const Machine& machine,
                 const Workload& work, const KernelNeeds& needs) {
  const bool whole = config.policy && config.policy->placement;
  if (KnowsRates(machine) && !whole && work.num_requests > 0) {
    const SearchResult result = SearchFor(config, model, machine, work, needs);
    if (result.feasible()) return result.best.front().policy;
  }
  const GivenPolicy given = PolicyGivenBy(config, model.shape, machine);
  Policy policy = DefaultPolicy(model, machine, work, given, needs);
  policy.placement_is_stated = given.placement.has_value();
  return policy;
}

}  // namespace spillway
