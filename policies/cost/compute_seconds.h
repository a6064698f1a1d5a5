// Seconds of the parts of one layer's compute for one batch, on rates that are known. What the cost
// model is made of. Pure functions of values; any thread.
#pragma once

#include <cstdint>

#include "policies/cost/batch_load.h"
#include "policies/cost/cost_rates.h"
#include "spillway/plan.h"

namespace spillway {

// Time of a product that does not grow with its matrix: a CPU's goes with the rows that it reads
// and writes, a GPU's kernels each take a while to begin and end.
enum class ProductOverhead { kPerEdge, kPerProduct };

// Products of `rows` rows with `num_products` matrices of `elements` numbers in all: arithmetic at
// the rate measured for so many rows, or reading the weights, whichever is longer.
struct ProductSize {
  int64_t rows = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
  double edges = 0.0;  // (inputs + outputs) / 2 of each matrix: what a row is read and written of
  DType weights = DType::kF16;
  ProductOverhead overhead = ProductOverhead::kPerEdge;
  int64_t num_products = 1;
};
UnitSeconds ProductSeconds(const DeviceRates& rates, const ProductSize& size);

// Attention of whole prompts, of `pairs` of a query and a key and `tokens` in all: scores, softmax
// and the sum of values; K and V to the cache; where tokens are evicted the scores of all, and the
// choice.
double PromptAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t pairs,
                              int64_t tokens);
// Attention of single tokens, each to its row's KV: `tokens` attended to in all.
double DecodeAttentionSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);

// Tells whether rows with their KV in `tier` are attended to by the CPU once they are in place.
bool AttendsOnCpu(const Plan& plan, Tier tier);
// Bytes that CPU attention reads of a batch's KV in one block.
int64_t CpuAttentionBytes(const Plan& plan, const PerTier<KvLoad>& kv);
// CPU attention to a batch's KV in one block reads it at its own rate on a cache of the plan's
// bits, or at what the links leave of the memory's, which is all once their `traffic_bytes` have
// passed.
double CpuAttentionSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv,
                           int64_t traffic_bytes);
// Seconds in which q, k and v of the rows that the CPU attends to beside a GPU cross to it in fp32
// (KvOutBytes has k and v as the cache has), and the results go back.
double HostRowsSeconds(const Plan& plan, const CostRates& rates, const PerTier<KvLoad>& kv);
// A pass over the states of all tokens that norms them, and one that adds to them.
double NormSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);
double ResidualSeconds(const Plan& plan, const DeviceRates& rates, int64_t tokens);
// Seconds of the logits' way from the head to the CPU, which chooses the tokens.
double LogitsSeconds(const Plan& plan, const CostRates& rates, int64_t rows);
// Greedy: each row's logits are looked through by one of the CPU's threads.
double SamplingSeconds(const Plan& plan, const DeviceRates& cpu, int64_t rows);

}  // namespace spillway
