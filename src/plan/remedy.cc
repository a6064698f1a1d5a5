#include "src/plan/remedy.h"

#include <fmt/format.h>

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
using Shares = std::array<PerTier<double>, 3>;

// Shares to try a smaller block with: the policy's where they are stated. Otherwise they are chosen
// anew for it, and fit where some in whole tiers do (default_policy.h).
std::vector<Shares> SharesToTry(const Plan& refused) {
  const Policy& policy = refused.policy;
  if (policy.placement_is_stated) {
    return {Shares{policy.weight_frac, policy.kv_frac, policy.activation_frac}};
  }
  std::vector<Shares> shares;
  const PerTier<int64_t>& caps = refused.machine.cap_bytes;
  for (const Tier weights : kAllTiers) {
    if (caps[weights] < refused.WeightBytes()) continue;
    for (const Tier kv : kAllTiers) {
      for (const Tier activations : kAllTiers) {
        if (caps[kv] == 0 || caps[activations] == 0) continue;
        shares.push_back({AllOn(weights), AllOn(kv), AllOn(activations)});
      }
    }
  }
  return shares;
}

// First of `policies` that fits; each takes less memory than the one before. nullopt: none does.
std::optional<Policy> FirstFitting(const std::vector<Policy>& policies, const Refused& refused) {
  std::size_t nearest = policies.size();
  for (const auto& [weights, kv, activations] : SharesToTry(refused.plan)) {
    const auto fits = [&](std::size_t at) {
      Policy policy = policies[at];
      policy.weight_frac = weights;
      policy.kv_frac = kv;
      policy.activation_frac = activations;
      return Fits(LayOut(refused.model, refused.plan.machine, refused.work, policy, refused.needs));
    };
    // A layout of 175 billion weights takes milliseconds: most shares are tried once, with the
    // last policy before what is found.
    if (nearest == 0 || !fits(nearest - 1)) continue;
    nearest = FirstThatHolds(0, nearest - 1, fits);
  }
  return nearest == policies.size() ? std::nullopt : std::optional(policies[nearest]);
}

// "--cpu-memory 9MiB": the flags with which the tier's cap is what is planned.
std::string CapFor(const Plan& plan, Tier tier) {
  const int64_t outside = tier == Tier::kGpu ? plan.machine.gpu_used_bytes : 0;
  const int64_t bytes = plan.PlannedBytes(tier) + outside;
  return fmt::format("{} {}MiB", CapWordsOf(plan.machine, tier).flags,
                     (bytes + (1 << 20) - 1) >> 20);
}

// Caps of all tiers that are short: more of one alone would be refused for the next. "At least",
// because what is planned before the input is read is one row of two tokens.
std::string LargerCaps(const Plan& plan) {
  std::vector<std::string> caps;
  for (const Tier tier : kAllTiers) {
    if (plan.Excess(tier) > 0) caps.push_back(CapFor(plan, tier));
  }
  return fmt::format("give at least {}", fmt::join(caps, " and "));
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

std::string RemedyFor(const Refused& refused) {
  const Plan& plan = refused.plan;
  const auto fitting = [&](const std::vector<Policy>& policies) {
    return FirstFitting(policies, refused);
  };
  const int64_t chunk = plan.policy.prefill_chunk;
  std::optional<Policy> smaller = fitting(ShorterChunks(plan));
  if (!smaller) smaller = fitting(SmallerBlocks(plan, chunk));
  if (!smaller && chunk > kLeastChunk) smaller = fitting(SmallerBlocks(plan, kLeastChunk));
  return smaller ? FlagsThatFit(plan, *smaller) : LargerCaps(plan);
}

}  // namespace spillway
