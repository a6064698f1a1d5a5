#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"
#include "kernels/convert.h"

namespace spillway::kernels {
namespace {

// `head` counts those of K, then those of V.
uint16_t* Slot(const AttentionArgs& args, const AttentionRow& row, int64_t head, int64_t slot) {
  const int64_t run = slot / kKvBlockSlots * 2 * args.num_kv_heads + head;
  return reinterpret_cast<uint16_t*>(row.kv) +
         (run * kKvBlockSlots + slot % kKvBlockSlots) * args.head_dim;
}

void StoreRef(const AttentionArgs& args, const AttentionRow& row, int64_t token) {
  const auto narrow = args.kv_dtype == DType::kF16 ? FloatToHalf : FloatToBFloat16;
  const int64_t from = (row.token_offset + token) * args.qkv_stride;
  for (int64_t head = 0; head < args.num_kv_heads; ++head) {
    uint16_t* k = Slot(args, row, head, row.num_past + token);
    uint16_t* v = Slot(args, row, args.num_kv_heads + head, row.num_past + token);
    for (int64_t d = 0; d < args.head_dim; ++d) {
      k[d] = narrow(args.k[from + head * args.head_dim + d]);
      v[d] = narrow(args.v[from + head * args.head_dim + d]);
    }
  }
}

void AttendRef(const AttentionArgs& args, const AttentionRow& row, int64_t token, int64_t head) {
  const auto widen = args.kv_dtype == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
  const int64_t kv_head = head / (args.num_heads / args.num_kv_heads);
  const int64_t num_keys = row.num_past + token + 1;
  const float* q = args.q + (row.token_offset + token) * args.qkv_stride + head * args.head_dim;
  std::vector<double> weights(static_cast<size_t>(num_keys));
  for (int64_t slot = 0; slot < num_keys; ++slot) {
    const uint16_t* k = Slot(args, row, kv_head, slot);
    double score = 0;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      score += static_cast<double>(q[d] * args.scale) * static_cast<double>(widen(k[d]));
    }
    weights[static_cast<size_t>(slot)] = score;
  }
  const double maximum = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - maximum);
  if (row.token_scores != nullptr) {
    float* scores = row.token_scores + head * args.token_scores_stride;
    for (int64_t slot = 0; slot < num_keys; ++slot)
      scores[slot] += static_cast<float>(weights[static_cast<size_t>(slot)] / total);
  }
  float* out = args.out + (row.token_offset + token) * args.out_stride + head * args.head_dim;
  for (int64_t d = 0; d < args.head_dim; ++d) {
    double sum = 0;
    for (int64_t slot = 0; slot < num_keys; ++slot) {
      const uint16_t* v = Slot(args, row, args.num_kv_heads + kv_head, slot);
      sum += weights[static_cast<size_t>(slot)] * static_cast<double>(widen(v[d]));
    }
    out[d] = static_cast<float>(sum / total);
  }
}

}  // namespace

void AttentionRef(const AttentionArgs& args) {
  for (const AttentionRow& row : args.rows) {
    for (int64_t token = 0; token < row.num_new; ++token) StoreRef(args, row, token);
    for (int64_t token = 0; token < row.num_new; ++token) {
      for (int64_t head = 0; head < args.num_heads; ++head) AttendRef(args, row, token, head);
    }
  }
}

}  // namespace spillway::kernels
