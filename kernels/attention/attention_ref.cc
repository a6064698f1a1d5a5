#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/kv/kv_element_ref.h"

namespace spillway::kernels {
namespace {

KvHead<std::byte> HeadOf(const AttentionArgs& args, const AttentionRow& row, int64_t kv_head) {
  return {row.kv,
          args.num_kv_heads,
          args.head_dim,
          kv_head,
          KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits),
          args.kv_bits};
}

void StoreRef(const AttentionArgs& args, const AttentionRow& row, int64_t token) {
  const int64_t from = (row.token_offset + token) * args.qkv_stride;
  const int64_t slot = row.num_past + token;
  for (int64_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
    const KvHead<std::byte> head = HeadOf(args, row, kv_head);
    KvTokenRef::Key(head, slot, args.kv_dtype).Store(args.k + from + kv_head * args.head_dim);
    KvTokenRef::Value(head, slot, args.kv_dtype).Store(args.v + from + kv_head * args.head_dim);
  }
}

void AttendRef(const AttentionArgs& args, const AttentionRow& row, int64_t token, int64_t head) {
  const KvHead<std::byte> kv = HeadOf(args, row, head / (args.num_heads / args.num_kv_heads));
  const int64_t num_keys = row.num_past + token + 1;
  const float* q = args.q + (row.token_offset + token) * args.qkv_stride + head * args.head_dim;
  std::vector<double> weights(static_cast<size_t>(num_keys));
  for (int64_t slot = 0; slot < num_keys; ++slot) {
    const KvTokenRef k = KvTokenRef::Key(kv, slot, args.kv_dtype);
    double score = 0;
    for (int64_t d = 0; d < args.head_dim; ++d) {
      score += static_cast<double>(q[d] * args.scale) * k.At(d);
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
      sum += weights[static_cast<size_t>(slot)] * KvTokenRef::Value(kv, slot, args.kv_dtype).At(d);
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
