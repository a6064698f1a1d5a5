#include "policies/default_policy.h"

namespace spillway {
namespace {

// At 64 rows a 16-bit weight read from memory feeds 128 FLOPs: past the ratio of arithmetic to
// memory rate of the processors measured (20 rows with AMX, 10 with AVX-512), so more rows only
// cost KV.
constexpr int64_t kRowsThatPay = 64;

// Enough tokens for a weight tile to be converted once and used often; 16 MiB of MLP activations at
// hidden 2048.
constexpr int64_t kPrefillChunk = 512;

}  // namespace

Policy DefaultPolicy(const ModelShape& shape, const Machine& machine, const Workload& work,
                     const GivenPolicy& given, const KernelNeeds& needs) {
  Policy policy;
  policy.weight_frac[Tier::kCpu] = 1.0;
  policy.kv_frac[Tier::kCpu] = 1.0;
  policy.activation_frac[Tier::kCpu] = 1.0;
  // Weights are used in place, so a second batch in the block would save no transfer.
  policy.num_gpu_batches = given.num_gpu_batches.value_or(1);
  policy.kv_dtype = given.kv_dtype;
  policy.prefill_chunk = given.prefill_chunk.value_or(kPrefillChunk);
  policy.gpu_batch_size = given.gpu_batch_size.value_or(kRowsThatPay);
  while (!given.gpu_batch_size && policy.gpu_batch_size > 1 &&
         !Fits(LayOut(shape, machine, work, policy, needs))) {
    policy.gpu_batch_size -= policy.gpu_batch_size > 16 ? 4 : 1;
  }
  while (!given.prefill_chunk && policy.prefill_chunk > 32 &&
         !Fits(LayOut(shape, machine, work, policy, needs))) {
    policy.prefill_chunk /= 2;
  }
  return policy;
}

}  // namespace spillway
