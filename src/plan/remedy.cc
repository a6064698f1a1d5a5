#include "src/plan/remedy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <vector>

#include "src/base/bisect.h"
#include "src/plan/cap_words.h"

namespace spillway {
namespace {

// Least prefill chunk that is tried: shorter ones save little memory and make products slow.
constexpr int64_t kLeastChunk = 64;

// Policy of the refused block, without batches that the workload has no rows for.
Policy RefusedBlock(const Plan& refused) {
  Policy policy = refused.policy;
  policy.gpu_batch_size = refused.batch.rows;
  policy.num_gpu_batches = refused.num_batches;
  return policy;
}

// Policies with shorter and shorter prefill chunks, all powers of two.
std::vector<Policy> ShorterChunks(const Plan& refused) {
  std::vector<Policy> chunks;
  Policy policy = RefusedBlock(refused);
  const auto fewer = static_cast<uint64_t>(refused.workspace.chunk_tokens - 1);
  for (auto chunk = static_cast<int64_t>(std::bit_floor(fewer)); chunk >= kLeastChunk; chunk /= 2) {
    policy.prefill_chunk = chunk;
    chunks.push_back(policy);
  }
  return chunks;
}

// Policies with the block halved again and again, num_gpu_batches first.
std::vector<Policy> SmallerBlocks(const Plan& refused, int64_t prefill_chunk) {
  std::vector<Policy> blocks;
  Policy policy = RefusedBlock(refused);
  policy.prefill_chunk = prefill_chunk;
  while (policy.gpu_batch_size * policy.num_gpu_batches > 1) {
    (policy.num_gpu_batches > 1 ? policy.num_gpu_batches : policy.gpu_batch_size) /= 2;
    blocks.push_back(policy);
  }
  return blocks;
}

// Shares of weights, KV and activations.
struct Shares {
  PerTier<double> weights;
  PerTier<double> kv;
  PerTier<double> activations;
};

// Tiers of weights, KV and activations: all 27 ways.
std::vector<std::array<Tier, 3>> WholeTiers() {
  std::vector<std::array<Tier, 3>> ways;
  for (const Tier weights : kAllTiers) {
    for (const Tier kv : kAllTiers) {
      for (const Tier activations : kAllTiers) ways.push_back({weights, kv, activations});
    }
  }
  return ways;
}

// Shares to try a smaller block with: the policy's where they are stated. Otherwise they are chosen
// anew for it, and fit where some in whole tiers do (default_policy.h).
std::vector<Shares> SharesToTry(const Plan& refused) {
  const Policy& policy = refused.policy;
  if (policy.placement_is_stated) {
    return {Shares{policy.weight_frac, policy.kv_frac, policy.activation_frac}};
  }
  std::vector<Shares> shares;
  const PerTier<int64_t>& caps = refused.machine.cap_bytes;
  for (const auto& [weights, kv, activations] : WholeTiers()) {
    if (caps[weights] < refused.WeightBytes() || caps[kv] == 0 || caps[activations] == 0) continue;
    shares.push_back({AllOn(weights), AllOn(kv), AllOn(activations)});
  }
  return shares;
}

// First of `policies` that fits; each takes less memory than the one before. nullopt: none does.
std::optional<Policy> FirstFitting(const std::vector<Policy>& policies, const Refused& refused) {
  std::size_t nearest = policies.size();
  for (const Shares& shares : SharesToTry(refused.plan)) {
    const auto fits = [&](std::size_t at) {
      Policy policy = policies[at];
      policy.weight_frac = shares.weights;
      policy.kv_frac = shares.kv;
      policy.activation_frac = shares.activations;
      return Fits(LayOut(refused.model, refused.plan.machine, refused.work, policy, refused.needs));
    };
    // A layout of 175 billion weights takes milliseconds: most shares are tried once, with the
    // last policy before what is found.
    if (nearest == 0 || !fits(nearest - 1)) continue;
    nearest = FirstThatHolds(0, nearest - 1, fits);
  }
  return nearest == policies.size() ? std::nullopt : std::optional(policies[nearest]);
}

// Caps of all tiers that are short: more of one alone would be refused for the next.
std::string LargerCaps(const Plan& plan) {
  std::vector<std::string> caps;
  for (const Tier tier : kAllTiers) {
    if (plan.Excess(tier) > 0) caps.push_back(CapFor(plan.machine, tier, plan.PlannedBytes(tier)));
  }
  return fmt::format("give at least {}", fmt::join(caps, " and "));
}

bool FitsBut(const Plan& plan, Tier tier) {
  return std::ranges::all_of(kAllTiers,
                             [&](Tier other) { return other == tier || plan.Excess(other) == 0; });
}

// Least bytes of a tier with which the refused block fits in whole tiers, all other caps being what
// they are; nullopt: no number of bytes is enough.
std::optional<int64_t> LeastOf(Tier tier, const Refused& refused) {
  const Machine& machine = refused.plan.machine;
  const auto usable = [&](Tier of) { return of == tier || machine.cap_bytes[of] > 0; };
  std::optional<int64_t> least;
  for (const auto& [weights, kv, activations] : WholeTiers()) {
    if (!usable(weights) || !usable(kv) || !usable(activations)) continue;
    Policy policy = RefusedBlock(refused.plan);
    policy.weight_frac = AllOn(weights);
    policy.kv_frac = AllOn(kv);
    policy.activation_frac = AllOn(activations);
    const Plan plan = LayOut(refused.model, machine, refused.work, policy, refused.needs);
    if (!FitsBut(plan, tier)) continue;
    least = std::min(least.value_or(INT64_MAX), plan.PlannedBytes(tier));
  }
  return least;
}

// Each of the caps that would do alone, where the placement is chosen anew for it; all that are
// short where none would.
std::string WaysOut(const Refused& refused) {
  const Machine& machine = refused.plan.machine;
  std::vector<std::string> ways;
  for (const Tier tier : kAllTiers) {
    if (tier == Tier::kGpu && machine.device != Tier::kGpu) continue;
    if (const std::optional<int64_t> bytes = LeastOf(tier, refused))
      ways.push_back(CapFor(machine, tier, *bytes));
  }
  if (ways.empty()) return LargerCaps(refused.plan);
  return fmt::format("give at least {}", fmt::join(ways, " or "));
}

// "--gpu-batch-size 8 --num-gpu-batches 1 fits": what differs.
std::string FlagsThatFit(const Plan& refused, const Policy& fitting) {
  std::vector<std::string> flags;
  if (fitting.gpu_batch_size != refused.batch.rows ||
      fitting.num_gpu_batches != refused.num_batches) {
    flags.push_back(fmt::format("--gpu-batch-size {} --num-gpu-batches {}", fitting.gpu_batch_size,
                                fitting.num_gpu_batches));
  }
  if (fitting.prefill_chunk != refused.policy.prefill_chunk)
    flags.push_back(fmt::format("--prefill-chunk {}", fitting.prefill_chunk));
  return fmt::format("{} fits", fmt::join(flags, " "));
}

}  // namespace

std::string CapFor(const Machine& machine, Tier tier, int64_t bytes) {
  const auto in_mib = [](int64_t of) { return (of + (1 << 20) - 1) >> 20; };
  if (tier == Tier::kGpu) bytes += machine.gpu_used_bytes;
  if (tier == Tier::kDisk && machine.disk_cap_is_free_space)  // nine tenths of it are taken
    return fmt::format("an --offload-dir with {}MiB free", in_mib((bytes + 8) / 9 * 10));
  return fmt::format("{} {}MiB", CapWordsOf(machine, tier).flags, in_mib(bytes));
}

std::string RemedyFor(const Refused& refused) {
  const Plan& plan = refused.plan;
  const auto fitting = [&](const std::vector<Policy>& policies) {
    return FirstFitting(policies, refused);
  };
  const int64_t chunk = plan.policy.prefill_chunk;
  std::optional<Policy> smaller = fitting(ShorterChunks(plan));
  if (!smaller) smaller = fitting(SmallerBlocks(plan, chunk));
  if (!smaller && chunk > kLeastChunk) smaller = fitting(SmallerBlocks(plan, kLeastChunk));
  if (smaller) return FlagsThatFit(plan, *smaller);
  return plan.policy.placement_is_stated ? LargerCaps(plan) : WaysOut(refused);
}

}  // namespace spillway
