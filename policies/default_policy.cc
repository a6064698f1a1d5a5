#include "policies/default_policy.h"

#include <algorithm>

namespace spillway {
namespace {

// At 64 rows a 16-bit weight read from memory feeds 128 FLOPs: past the ratio of arithmetic to
// memory rate of the processors measured (20 rows with AMX, 10 with AVX-512), so more rows only
// cost KV.
constexpr int64_t kRowsThatPay = 64;

// Fewer rows than this leave most of what one read of the weights could do undone: then weights
// make room.
constexpr int64_t kRowsWorthSpilling = 8;

// A weight that comes from disk must feed many more: 512 rows at 2 GB/s ask for 0.5 TFLOP/s.
constexpr int64_t kRowsOfASpilledBlock = 512;

// Enough tokens for a weight tile to be converted once and used often; 16 MiB of MLP activations at
// hidden 2048.
constexpr int64_t kPrefillChunk = 512;

// Steps in which weights are put back into memory.
constexpr int kWeightSteps = 20;

PerTier<double> AllOn(Tier tier) {
  PerTier<double> frac;
  frac[tier] = 1.0;
  return frac;
}

struct Planner {
  const ModelShape& shape;
  const Machine& machine;
  const Workload& work;
  const GivenPolicy& given;
  const KernelNeeds& needs;

  // A second batch would save no transfer.
  int64_t RowsInPlace() const { return given.gpu_batch_size.value_or(kRowsThatPay); }

  bool Holds(const Policy& policy) const {
    return Fits(LayOut(shape, machine, work, policy, needs));
  }

  Policy Start(const Placement& placement) const {
    Policy policy;
    policy.weight_frac = placement.weights;
    policy.kv_frac = placement.kv;
    policy.activation_frac = placement.activations;
    policy.cpu_attention = given.cpu_attention.value_or(false);
    policy.weight_bits = shape.weight_bits;
    policy.kv_dtype = given.kv_dtype.value_or(DType::kF16);
    policy.kv_bits = given.kv_bits.value_or(16);
    policy.kv = given.kv.value_or(KvPolicy{});
    policy.prefill_chunk = given.prefill_chunk.value_or(kPrefillChunk);
    policy.gpu_batch_size = given.gpu_batch_size.value_or(kRowsThatPay);
    policy.num_gpu_batches = given.num_gpu_batches.value_or(1);
    return policy;
  }

  // The largest block, up to `rows`, with which the placement fits; the smallest when none does.
  Policy Shrink(Policy policy, int64_t rows) const {
    const int64_t wanted = std::clamp<int64_t>(work.num_requests, 1, rows);
    if (!given.gpu_batch_size) policy.gpu_batch_size = std::min(policy.gpu_batch_size, wanted);
    if (!given.num_gpu_batches) {
      policy.num_gpu_batches = (wanted + policy.gpu_batch_size - 1) / policy.gpu_batch_size;
      while (policy.num_gpu_batches > 1 && !Holds(policy)) --policy.num_gpu_batches;
    }
    while (!given.gpu_batch_size && policy.gpu_batch_size > 1 && !Holds(policy)) {
      policy.gpu_batch_size -= policy.gpu_batch_size > 16 ? 4 : 1;
    }
    while (!given.prefill_chunk && policy.prefill_chunk > 32 && !Holds(policy)) {
      policy.prefill_chunk /= 2;
    }
    return policy;
  }

  // As many weights from one tier to a faster one as still fit.
  Policy Raise(Policy policy, Tier from, Tier to) const {
    Policy best = policy;
    const double movable = policy.weight_frac[from];
    for (int step = 1; step <= kWeightSteps; ++step) {
      policy.weight_frac[to] = movable * step / kWeightSteps;
      policy.weight_frac[from] = movable - policy.weight_frac[to];
      if (!Holds(policy)) break;
      best = policy;
    }
    return best;
  }

  bool HoldsEnough(const Policy& policy) const {
    const int64_t rows = policy.gpu_batch_size * policy.num_gpu_batches;
    return rows >= std::min({kRowsWorthSpilling, work.num_requests, RowsInPlace()}) &&
           Holds(policy);
  }

  Policy Choose() const {
    const Tier device = machine.device;
    const Placement resident = {AllOn(device), AllOn(device), AllOn(device)};
    const Policy in_place = Shrink(Start(resident), RowsInPlace());
    if (HoldsEnough(in_place)) return in_place;

    // Weights leave first: one read of them serves the block. KV is read for each row.
    if (device == Tier::kCpu) {
      const Policy policy = Spill(Tier::kDisk, device);
      if (Holds(policy)) return Raise(policy, Tier::kDisk, device);
      return LacksDiskOnly(policy) ? policy : in_place;  // whose refusal names the larger need
    }
    for (const Tier rows : {device, Tier::kCpu}) {
      const Policy policy = Spill(Tier::kCpu, rows);
      if (HoldsEnough(policy)) return Raise(policy, Tier::kCpu, device);
    }
    for (const Tier rows : {device, Tier::kCpu}) {
      const Policy policy = Spill(Tier::kDisk, rows);
      if (!HoldsEnough(policy)) continue;
      return Raise(Raise(policy, Tier::kDisk, device), Tier::kDisk, Tier::kCpu);
    }
    const Policy last = Spill(Tier::kDisk, Tier::kCpu);
    return Holds(last) || LacksDiskOnly(last) ? last : in_place;
  }

  // All weights in one tier, KV and activations in another.
  Policy Spill(Tier weights, Tier rows) const {
    return Shrink(Start({AllOn(weights), AllOn(rows), AllOn(rows)}), kRowsOfASpilledBlock);
  }

  bool LacksDiskOnly(const Policy& policy) const {
    const Plan plan = LayOut(shape, machine, work, policy, needs);
    return std::ranges::all_of(kAllTiers, [&](Tier tier) {
      return tier == Tier::kDisk || plan.PlannedBytes(tier) <= machine.cap_bytes[tier];
    });
  }
};

}  // namespace

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs) {
  const Planner planner = {shape, machine, work, given, needs};
  if (!given.placement) return planner.Choose();
  // Batches that share one read of weights from elsewhere pay; in place they would save nothing.
  const bool moves = given.placement->weights[machine.device] < 1.0;
  return planner.Shrink(planner.Start(*given.placement),
                        moves ? kRowsOfASpilledBlock : planner.RowsInPlace());
}

}  // namespace spillway
