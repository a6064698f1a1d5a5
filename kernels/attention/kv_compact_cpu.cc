#include <algorithm>

#include "kernels/attention/kv_compact.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_head.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

void CheckArgs(const KvCompactArgs& args) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  SPILLWAY_CHECK(args.kind != KvPolicyKind::kFull);
  for (const KvCompactRow& row : args.rows) {
    SPILLWAY_CHECK(row.kv_head >= 0 && row.kv_head + args.RunHeads() <= args.num_kv_heads);
    SPILLWAY_CHECK(row.keep.recent >= 1 && row.keep.heavy >= 0 && row.keep.sinks >= 0);
    SPILLWAY_CHECK(UsesScores(args.kind) ? row.token_scores != nullptr : row.keep.heavy == 0);
    SPILLWAY_CHECK(row.token_scores == nullptr || row.num_tokens <= args.token_scores_stride);
    SPILLWAY_CHECK(row.num_slots % KvBlockSlots(args.kv_bits) == 0);
    SPILLWAY_CHECK(std::min(row.num_tokens, row.keep.slots()) <= row.num_slots);
  }
}

// One KV head of one row.
struct Compaction {
  const KvCompactArgs& args;
  const KvCompactRow& row;
  int64_t kv_head;  // of the model's
  float* scores;    // [num_tokens]
  int32_t* order;   // [num_tokens]: scratch to select in, then the heavy positions

  void SumScores() const;
  void SelectHeavy(KvKeep kept) const;
  void Copy(KvKeep kept) const;
};

void Compaction::SumScores() const {
  std::fill_n(scores, row.num_tokens, 0.0F);
  if (row.token_scores == nullptr) return;
  const int64_t group = args.num_heads / args.num_kv_heads;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const float* from = row.token_scores + head * args.token_scores_stride;
    for (int64_t token = 0; token < row.num_tokens; ++token) scores[token] += from[token];
  }
}

// order[0, heavy) = the heaviest tokens between the sinks and the recent ones, ascending.
void Compaction::SelectHeavy(KvKeep kept) const {
  const int64_t first = std::max(kept.sinks, FirstSeen(kept, row.num_tokens));
  const int64_t num_candidates = row.num_tokens - kept.recent - first;
  for (int64_t i = 0; i < num_candidates; ++i) order[i] = static_cast<int32_t>(first + i);
  auto stays_before = [&](int32_t a, int32_t b) {
    const float score_a = OrderedScore(scores[a]);
    const float score_b = OrderedScore(scores[b]);
    return score_a != score_b ? score_a > score_b : a < b;
  };
  std::nth_element(order, order + kept.heavy, order + num_candidates, stays_before);
  std::sort(order, order + kept.heavy);
}

void Compaction::Copy(KvKeep kept) const {
  const int64_t from_block = KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits);
  const KvHead<const std::byte> from{row.from, args.num_kv_heads, args.head_dim,
                                     kv_head,  from_block,        args.kv_bits};
  KvHead<const std::byte> prefix = from;
  prefix.kv = row.prefix;
  const int64_t heads = args.RunHeads();
  const int64_t to_block =
      KvBlockBytesWithState(heads, args.head_dim, args.kv_bits) + args.kv_block_fill;
  const KvHead<std::byte> to{row.kv,   heads,       args.head_dim, kv_head - row.kv_head,
                             to_block, args.kv_bits};
  const bool all = row.num_tokens <= kept.slots();
  const int64_t num_older = kept.sinks + kept.heavy;
  auto position_of = [&](int64_t slot) {
    if (all || slot < kept.sinks) return slot;
    if (slot < num_older) return static_cast<int64_t>(order[slot - kept.sinks]);
    return row.num_tokens - kept.recent + slot - num_older;
  };
  for (int64_t slot = 0; slot < std::min(row.num_tokens, kept.slots()); ++slot) {
    const int64_t position = position_of(slot);
    const bool in_prefix = position < row.prefix_tokens;
    CopyToken(in_prefix ? prefix : from, in_prefix ? position : position - row.prefix_tokens, to,
              slot);
    *to.Score(slot) = scores[position];
    *to.Position(slot) = static_cast<int32_t>(position);
  }
}

int64_t TokensScratchBytes(int64_t max_tokens) { return (max_tokens + 15) / 16 * 16 * 8; }

}  // namespace

int64_t KvCompactWorkspaceBytes(int64_t max_tokens, int num_threads) {
  return num_threads * TokensScratchBytes(max_tokens);
}

void KvCompact(const KvCompactArgs& args, std::span<std::byte> workspace, ThreadPool& pool) {
  if (args.rows.empty()) return;
  CheckArgs(args);
  int64_t max_tokens = 0;
  for (const KvCompactRow& row : args.rows) max_tokens = std::max(max_tokens, row.num_tokens);
  const int64_t scratch_bytes = TokensScratchBytes(max_tokens);
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >= pool.num_threads() * scratch_bytes);
  const int64_t heads = args.RunHeads();
  auto compact = [&](int64_t index, int worker) {
    const KvCompactRow& row = args.rows[static_cast<size_t>(index / heads)];
    const KvKeep kept = KeptTokens(args.kind, row.keep);
    float* scores = reinterpret_cast<float*>(workspace.data() + worker * scratch_bytes);
    int32_t* order = reinterpret_cast<int32_t*>(scores + scratch_bytes / 8);
    const Compaction compaction{args, row, row.kv_head + index % heads, scores, order};
    compaction.SumScores();
    if (row.num_tokens > kept.slots() && kept.heavy > 0) compaction.SelectHeavy(kept);
    compaction.Copy(kept);
  };
  pool.Run(static_cast<int64_t>(args.rows.size()) * heads, compact);
}

}  // namespace spillway::kernels
