#include "policies/search/default_policy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "spillway/round.h"
#include "src/base/bisect.h"

namespace spillway {
namespace {

// Rows of a batch beyond which more only cost KV: at 64 rows a 16-bit weight read from memory feeds
// 128 FLOPs, past the ratio of arithmetic to memory rate of the processors measured (20 rows with
// AMX, 10 with AVX-512).
constexpr int64_t kRowsThatPay = 64;

// Rows below which weights make room for more: fewer leave most of one read of the weights unused.
constexpr int64_t kRowsWorthSpilling = 8;

// Rows of a block whose weights come from disk: 512 rows at 2 GB/s ask for 0.5 TFLOP/s.
constexpr int64_t kRowsOfASpilledBlock = 512;

// Least prefill chunk: shorter ones save little memory.
constexpr int64_t kLeastPrefillChunk = 32;

// Steps in which a share is put back into faster memory.
constexpr int kSteps = 20;

// Weights, KV or activations of a policy.
using Shares = PerTier<double> Policy::*;

// Values from `from` down to `to`, each the `next` of the one before.
template <typename F>
std::vector<int64_t> Descending(int64_t from, int64_t to, F next) {
  std::vector<int64_t> values;
  for (int64_t value = from; value > to; value = next(value)) values.push_back(value);
  values.push_back(to);
  return values;
}

// First of choices, each taking less than the one before, for which `holds`; the last when none
// does. A layout of 175 billion weights takes milliseconds, so few are tried.
template <typename F>
std::size_t FirstOrLast(std::size_t num_choices, F holds) {
  if (num_choices == 1 || holds(0)) return 0;
  return FirstThatHolds(1, num_choices - 1, holds);
}

struct Planner {
  const Model& model;
  const Machine& machine;
  const Workload& work;
  const GivenPolicy& given;
  const KernelNeeds& needs;

  // Rows of a block whose weights stay in place: a second batch would save no transfer. But where
  // all states are on the device, experts are multiplied with rows of all batches, and each is
  // chosen by a part of them.
  int64_t RowsInPlace() const {
    if (given.gpu_batch_size) return *given.gpu_batch_size;
    const ExpertShape& experts = model.shape.experts;
    const bool gathers = !given.placement || given.placement->activations[machine.device] == 1.0;
    if (experts.num == 0 || !gathers) return kRowsThatPay;
    return std::min(kRowsOfASpilledBlock, kRowsThatPay * DivideUp(experts.num, experts.top_k));
  }

  Plan PlanOf(const Policy& policy) const { return LayOut(model, machine, work, policy, needs); }

  bool Holds(const Policy& policy) const { return Fits(PlanOf(policy)); }

  Policy Start(const Placement& placement) const {
    Policy policy;
    policy.weight_frac = placement.weights;
    policy.kv_frac = placement.kv;
    policy.activation_frac = placement.activations;
    policy.cpu_attention = given.cpu_attention.value_or(false);
    if (!given.placement && KvLeavesGpu(machine, policy))
      policy.kv_frac[Tier::kCpu] += std::exchange(policy.kv_frac[Tier::kGpu], 0.0);
    policy.weight_bits = model.shape.weight_bits;
    policy.kv_dtype = given.kv_dtype.value_or(DType::kF16);
    policy.kv_bits = given.kv_bits.value_or(16);
    policy.kv = given.kv.value_or(KvPolicy{});
    policy.prefill_chunk = given.prefill_chunk.value_or(kPrefillChunk);
    policy.gpu_batch_size = given.gpu_batch_size.value_or(kRowsThatPay);
    policy.num_gpu_batches = given.num_gpu_batches.value_or(1);
    return policy;
  }

  Policy Smallest(Policy policy) const {
    if (!given.gpu_batch_size) policy.gpu_batch_size = 1;
    if (!given.num_gpu_batches) policy.num_gpu_batches = 1;
    if (!given.prefill_chunk) policy.prefill_chunk = kLeastPrefillChunk;
    return policy;
  }

  // Largest block, up to `rows`, with which the placement fits; the smallest when none does.
  Policy Shrink(Policy policy, int64_t rows) const {
    if (Policy smallest = Smallest(policy); !Holds(smallest)) return smallest;
    const int64_t wanted = std::clamp<int64_t>(work.num_requests, 1, rows);
    const auto choose = [&](int64_t Policy::*field, const std::vector<int64_t>& values) {
      policy.*field = values[FirstOrLast(values.size(), [&](std::size_t at) {
        policy.*field = values[at];
        return Holds(policy);
      })];
    };
    if (!given.gpu_batch_size) policy.gpu_batch_size = std::min(policy.gpu_batch_size, wanted);
    const auto choose_batches = [&] {
      if (given.num_gpu_batches) return;
      const int64_t most = (wanted + policy.gpu_batch_size - 1) / policy.gpu_batch_size;
      choose(&Policy::num_gpu_batches, Descending(most, 1, [](int64_t n) { return n - 1; }));
    };
    choose_batches();
    if (!given.gpu_batch_size) {
      choose(&Policy::gpu_batch_size, Descending(policy.gpu_batch_size, 1,
                                                 [](int64_t n) { return n > 16 ? n - 4 : n - 1; }));
      choose_batches();  // of smaller ones more may fit
    }
    return Holds(policy) ? policy : ShortenChunk(policy);
  }

  // Longest chunk with which memory holds the policy.
  Policy ShortenChunk(Policy policy) const {
    if (given.prefill_chunk) return policy;
    const std::vector<int64_t> chunks =
        Descending(kPrefillChunk, kLeastPrefillChunk, [](int64_t n) { return n / 2; });
    policy.prefill_chunk = chunks[FirstOrLast(chunks.size(), [&](std::size_t at) {
      policy.prefill_chunk = chunks[at];
      return MemoryHolds(policy);
    })];
    return policy;
  }

  // Moves as much of one kind from a tier to a faster one as memory has room for.
  Policy Raise(const Policy& policy, Shares shares, Tier from, Tier to) const {
    const double movable = (policy.*shares)[from];
    const auto at = [&](int step) {
      Policy raised = policy;
      const double moved = movable * step / kSteps;
      (raised.*shares)[to] += moved;
      (raised.*shares)[from] = movable - moved;
      return raised;
    };
    if (movable <= 0.0) return policy;
    // All of it may take less than most of it, which is staged beside.
    const std::size_t kept = FirstOrLast(kSteps + 1, [&](std::size_t back) {
      return MemoryHolds(at(kSteps - static_cast<int>(back)));
    });
    const Policy raised = at(kSteps - static_cast<int>(kept));
    return PlacedIn(raised, to) == PlacedIn(policy, to) ? policy : raised;
  }

  // Bytes of weights and KV, and rows of activations, that lie in a tier: what a share of few rows
  // comes to may be nothing.
  std::array<int64_t, 3> PlacedIn(const Policy& policy, Tier tier) const {
    const Plan plan = PlanOf(policy);
    return {plan.weight_bytes[tier], plan.kv[tier].region.bytes, plan.hidden[tier].rows};
  }

  // Moves one kind from disk to wherever there is room.
  Policy RaiseFromDisk(const Policy& policy, Shares shares) const {
    if (shares == &Policy::kv_frac && KvLeavesGpu(machine, policy))
      return Raise(policy, shares, Tier::kDisk, Tier::kCpu);
    const Policy raised = Raise(policy, shares, Tier::kDisk, machine.device);
    return machine.device == Tier::kCpu ? raised : Raise(raised, shares, Tier::kDisk, Tier::kCpu);
  }

  bool HoldsEnough(const Policy& policy) const {
    const int64_t rows = policy.gpu_batch_size * policy.num_gpu_batches;
    return rows >= std::min({kRowsWorthSpilling, work.num_requests, RowsInPlace()}) &&
           Holds(policy);
  }

  // Takes longer chunks of prompts on a GPU whose memory holds them beside the rest.
  Policy LengthenChunk(Policy policy) const {
    if (given.prefill_chunk || machine.device != Tier::kGpu || !Holds(policy)) return policy;
    Policy longer = policy;
    longer.prefill_chunk = kGpuPrefillChunk;
    return Holds(longer) ? longer : policy;
  }

  Policy Choose() const {
    const Tier device = machine.device;
    const Placement resident = {AllOn(device), AllOn(device), AllOn(device)};
    const Policy in_place = Shrink(Start(resident), RowsInPlace());
    if (HoldsEnough(in_place)) return in_place;

    // Weights leave first: one read of them serves the block. KV is read for each row.
    if (device == Tier::kGpu) {
      for (const Tier rows : {device, Tier::kCpu}) {
        const Policy policy = Spill(Tier::kCpu, rows);
        if (HoldsEnough(policy)) return Raise(policy, &Policy::weight_frac, Tier::kCpu, device);
      }
      const Policy policy = Spill(Tier::kDisk, device);
      if (HoldsEnough(policy)) return RaiseFromDisk(policy, &Policy::weight_frac);
    }
    const Policy policy = Spill(Tier::kDisk, Tier::kCpu);
    return HoldsEnough(policy) ? RaiseFromDisk(policy, &Policy::weight_frac) : SpillRows(policy);
  }

  // All weights in one tier, KV and activations in another.
  Policy Spill(Tier weights, Tier rows) const {
    return Shrink(Start({AllOn(weights), AllOn(rows), AllOn(rows)}), kRowsOfASpilledBlock);
  }

  // Moves KV to disk too, where memory does not hold the rows of a block that pays. Where `few`
  // rows fit all the same, the one with less to read for a row is the faster.
  Policy SpillRows(const Policy& few) const {
    const Policy leanest = Leanest();
    const Policy many = FillMemory(leanest);
    if (!Holds(few)) return Holds(leanest) ? many : InWholeTiers(many);
    const Policy filled = RaiseFromDisk(few, &Policy::weight_frac);
    return Holds(many) && DiskBytesOfARow(PlanOf(many)) < DiskBytesOfARow(PlanOf(filled)) ? many
                                                                                          : filled;
  }

  // Chooses where disk is short as well: of the placements in whole tiers that fit the one with
  // most rows, then with least to read for a row. When none fits, the one that lacks least: its
  // refusal names what would be enough.
  Policy InWholeTiers(const Policy& refused) const {
    Policy best = refused;
    auto best_rank = Rank(refused);
    for (const Tier weights : UsableTiers()) {
      for (const Tier kv : UsableTiers()) {
        for (const Tier activations : UsableTiers()) {
          const Policy policy =
              Shrink(Start({AllOn(weights), AllOn(kv), AllOn(activations)}), kRowsOfASpilledBlock);
          const auto rank = Rank(policy);
          if (rank >= best_rank) continue;
          best = policy;
          best_rank = rank;
        }
      }
    }
    return Holds(best) ? FillMemory(best) : best;
  }

  std::vector<Tier> UsableTiers() const {
    std::vector<Tier> tiers;
    for (const Tier tier : kAllTiers) {
      if (machine.cap_bytes[tier] > 0) tiers.push_back(tier);
    }
    return tiers;
  }

  // The bytes of memory that are missing, those of disk, which is easier to come by, then rows
  // (more is less), then bytes read for a row.
  std::tuple<int64_t, int64_t, int64_t, double> Rank(const Policy& policy) const {
    const Plan plan = PlanOf(policy);
    const int64_t memory = plan.Excess(Tier::kGpu) + plan.Excess(Tier::kCpu);
    return {memory, plan.Excess(Tier::kDisk), -policy.gpu_batch_size * policy.num_gpu_batches,
            DiskBytesOfARow(plan)};
  }

  // Places on disk whatever takes less memory there. A kind is staged in a few places, which may be
  // more than it has of its own: the activations of one batch have one, and three on their way.
  Policy Leanest() const {
    Policy policy = Spill(Tier::kDisk, Tier::kDisk);
    if (MemoryHolds(policy)) return policy;
    for (const Shares shares : {&Policy::weight_frac, &Policy::kv_frac, &Policy::activation_frac}) {
      Policy at_home = policy;
      const bool leaves = shares == &Policy::kv_frac && KvLeavesGpu(machine, policy);
      at_home.*shares = AllOn(leaves ? Tier::kCpu : machine.device);
      if (TakesNoMore(at_home, policy)) policy = at_home;
    }
    return policy;
  }

  // Moves back what memory has room for. Activations come first, which pass the disk twice in every
  // layer. A byte of weights is read once a pass, one of KV a little less often and, where tokens
  // have scores, written every few passes too. On a small disk the other order may be the one that
  // fits.
  Policy FillMemory(const Policy& policy) const {
    if (!MemoryHolds(policy)) return policy;
    // States in memory may leave room for longer chunks than states that are staged.
    const Policy begun = ShortenChunk(RaiseFromDisk(policy, &Policy::activation_frac));
    const auto filled = [&](Shares first, Shares second) {
      return RaiseFromDisk(RaiseFromDisk(begun, first), second);
    };
    const Policy weights_first = filled(&Policy::weight_frac, &Policy::kv_frac);
    const Policy kv_first = filled(&Policy::kv_frac, &Policy::weight_frac);
    const bool prefers_kv = UsesScores(policy.kv.kind) ? Holds(kv_first) : !Holds(weights_first);
    return prefers_kv ? kv_first : weights_first;
  }

  // Bytes that one pass reads and writes for a row, on average, with rows at their longest.
  static double DiskBytesOfARow(const Plan& plan) {
    const double written =
        UsesScores(plan.kept.kind) ? 1.0 / static_cast<double>(plan.kv_log.passes) : 0.0;
    const double kv =
        static_cast<double>(plan.kv[Tier::kDisk].region.bytes) * (1.0 + written) +
        static_cast<double>(plan.num_batches * plan.shape.num_layers) * plan.kv_log.MeanBytes();
    const int64_t num_groups = plan.shape.num_layers + 2;  // of layers, with the ends
    const int64_t hidden = 2 * (num_groups - 1) * plan.num_batches * plan.hidden[Tier::kDisk].rows *
                           plan.HiddenRowBytes();
    return (static_cast<double>(plan.weight_bytes[Tier::kDisk] + hidden) + kv) /
           static_cast<double>(plan.BlockRows());
  }

  // Tells whether CPU and GPU memory hold the policy. Bytes on disk beyond its cap may still come
  // to memory.
  bool MemoryHolds(const Policy& policy) const {
    const Plan plan = PlanOf(policy);
    return std::ranges::all_of(
        kAllTiers, [&](Tier tier) { return tier == Tier::kDisk || plan.Excess(tier) == 0; });
  }

  bool TakesNoMore(const Policy& policy, const Policy& than) const {
    const Plan plan = PlanOf(policy);
    const Plan other = PlanOf(than);
    return std::ranges::all_of(kAllTiers, [&](Tier tier) {
      return tier == Tier::kDisk || plan.PlannedBytes(tier) <= other.PlannedBytes(tier);
    });
  }
};

}  // namespace

Policy DefaultPolicy(const Model& model, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs) {
  const Planner planner = {model, machine, work, given, needs};
  if (!given.placement) return planner.LengthenChunk(planner.Choose());
  // Batches that share one read of weights from elsewhere pay; in place they would save nothing.
  const bool moves = given.placement->weights[machine.device] < 1.0;
  return planner.LengthenChunk(planner.Shrink(
      planner.Start(*given.placement), moves ? kRowsOfASpilledBlock : planner.RowsInPlace()));
}

}  // namespace spillway
