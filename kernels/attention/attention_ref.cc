#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/query_ref.h"
#include "kernels/kv/kv_element_ref.h"

namespace spillway::kernels {
namespace {

// A slot of a row, as its head's cache counts it.
struct SlotRef {
  KvHead<std::byte> head;
  int64_t slot;

  SlotRef(const AttentionArgs& args, const AttentionRow& row, int64_t kv_head, int64_t of_row)
      : head{of_row < row.prefix_slots ? row.prefix : row.kv,
             args.num_kv_heads,
             args.head_dim,
             kv_head,
             KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits) + args.kv_block_fill,
             args.kv_bits},
        slot(of_row < row.prefix_slots ? of_row : of_row - row.prefix_slots) {}
};

void StoreRef(const AttentionArgs& args, const AttentionRow& row, int64_t token) {
  const int64_t from = (row.token_offset + token) * args.qkv_stride;
  const int64_t slot = row.num_past + token;
  for (int64_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
    const SlotRef at(args, row, kv_head, slot);
    const int64_t of_head = from + kv_head * args.head_dim;
    KvTokenRef::Key(at.head, at.slot, args.kv_dtype).Store(args.k + of_head);
    KvTokenRef::Value(at.head, at.slot, args.kv_dtype).Store(args.v + of_head);
  }
}

// One KV head of a row, read once for all of its queries: [num_keys][head_dim].
struct HeadRef {
  std::vector<double> keys;
  std::vector<double> values;
};

HeadRef ReadHead(const AttentionArgs& args, const AttentionRow& row, int64_t kv_head) {
  HeadRef read;
  for (int64_t slot = 0; slot < row.num_past + row.num_new; ++slot) {
    const SlotRef at(args, row, kv_head, slot);
    const KvTokenRef stored = KvTokenRef::Key(at.head, at.slot, args.kv_dtype);
    std::vector<double> key = TurnedKeyRef(stored, args.turns, slot);
    AddMeanRef(args.means, kv_head, slot, key);
    read.keys.insert(read.keys.end(), key.begin(), key.end());
    for (int64_t d = 0; d < args.head_dim; ++d) {
      read.values.push_back(KvTokenRef::Value(at.head, at.slot, args.kv_dtype).At(d));
    }
  }
  return read;
}

// exp(score - highest) of the slots from `first` on, which a query sees; returns their sum, that of
// the sink included.
double WeightsRef(const AttentionArgs& args, const HeadRef& kv, std::span<const double> q,
                  double sink, std::size_t first, std::vector<double>& weights) {
  for (std::size_t slot = first; slot < weights.size(); ++slot) {
    const double* key = kv.keys.data() + slot * static_cast<std::size_t>(args.head_dim);
    double score = 0;
    for (const double element : q) score += element * *key++;
    weights[slot] = SoftCapRef(score, args.soft_cap);
  }
  const std::span<double> seen = std::span(weights).subspan(first);
  const double maximum = std::max(sink, *std::ranges::max_element(seen));
  double total = std::exp(sink - maximum);
  for (double& weight : seen) total += weight = std::exp(weight - maximum);
  return total;
}

void AttendRef(const AttentionArgs& args, const AttentionRow& row, const HeadRef& kv, int64_t token,
               int64_t head, QueriesRef queries) {
  const int64_t at = row.token_offset + token;
  std::vector<double> weights(static_cast<std::size_t>(row.num_past + token + 1));
  const int64_t unseen =
      args.window == 0 ? 0 : std::max<int64_t>(0, std::ssize(weights) - args.window);
  const std::vector<double> q =
      QueryRef(args, args.q + at * args.qkv_stride + head * args.head_dim, queries);
  const double total =
      WeightsRef(args, kv, q, SinkRef(args.sinks, head), static_cast<std::size_t>(unseen), weights);
  if (row.token_scores != nullptr) {
    float* scores = row.token_scores + head * args.token_scores_stride;
    for (const double weight : weights) *scores++ += static_cast<float>(weight / total);
  }
  std::vector<double> sums(static_cast<std::size_t>(args.head_dim));
  const double* value = kv.values.data() + unseen * args.head_dim;
  for (const double weight : std::span(weights).subspan(static_cast<std::size_t>(unseen))) {
    for (double& sum : sums) sum += weight * *value++;
  }
  float* out = args.out + at * args.out_stride + head * args.head_dim;
  for (const double sum : sums) *out++ = static_cast<float>(sum / total);
}

void AttendRef(const AttentionArgs& args, QueriesRef queries) {
  const int64_t group = args.num_heads / args.num_kv_heads;
  for (const AttentionRow& row : args.rows) {
    for (int64_t token = 0; token < row.num_new; ++token) StoreRef(args, row, token);
    for (int64_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
      const HeadRef kv = ReadHead(args, row, kv_head);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t token = 0; token < row.num_new; ++token)
          AttendRef(args, row, kv, token, head, queries);
      }
    }
  }
}

}  // namespace

void AttentionRef(const AttentionArgs& args) { AttendRef(args, QueriesRef::kRounded); }

void AttentionRefUnrounded(const AttentionArgs& args) { AttendRef(args, QueriesRef::kAsTheyAre); }

}  // namespace spillway::kernels
