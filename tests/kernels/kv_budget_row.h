// One row of random tokens through the kernels of a fixed-size KV cache: prompt, compaction, steps.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/kv/kv_element_ref.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_head.h"
#include "spillway/round.h"
#include "tests/kernels/kernel_test_util.h"

namespace spillway::kernels {

struct BudgetCase {
  int64_t num_heads;
  int64_t num_kv_heads;
  int64_t head_dim;
  KvPolicyKind kind;
  KvKeep keep;
  int64_t prompt;
  int64_t steps;

  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t num_tokens() const { return prompt + steps; }
  int64_t stride() const { return (num_heads + 2 * num_kv_heads) * head_dim + 3; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
};

inline void PrintTo(const BudgetCase& c, std::ostream* out) {
  *out << KvPolicyName(c.kind) << " heads " << c.num_heads << "/" << c.num_kv_heads << " x "
       << c.head_dim << " keep " << c.keep.sinks << "+" << c.keep.heavy << "+" << c.keep.recent
       << " window " << c.keep.window << " prompt " << c.prompt << " steps " << c.steps;
}

inline ThreadPool& PoolOf(int num_threads) {
  static std::map<int, std::unique_ptr<ThreadPool>> pools;
  auto& pool = pools[num_threads];
  if (!pool) pool = std::make_unique<ThreadPool>(num_threads);
  return *pool;
}

struct BudgetRow {
  static constexpr int64_t kBlockFill = 96;  // as of a row on disk

  BudgetCase c;
  KvStorage storage;
  std::vector<float> qkv;  // [token][q | k | v]
  AlignedBytes prompt_kv;
  AlignedBytes cache;
  std::vector<float> token_scores;  // [num_heads][prompt]
  int64_t num_held = 0;
  int64_t position = 0;
  std::vector<float> out;    // of the last call's tokens
  std::vector<float> sinks;  // [num_heads]; or none
  KeyTurns turns = {};       // of a rolling cache
  int64_t newest_place = 0;  // likewise
  KeyMeans means = {};       // of centred keys

  BudgetRow(const BudgetCase& budget_case, KvStorage kv, uint32_t seed)
      : c(budget_case),
        storage(kv),
        qkv(RandomFloats(c.num_tokens() * c.stride(), seed, 1.5F)),
        prompt_kv(RoundUp(c.prompt, KvBlockSlots(kv.bits)) *
                  KvSlotBytes(c.num_kv_heads, c.head_dim, kv.bits)),
        cache(num_slots() / KvBlockSlots(kv.bits) * block_bytes()),
        token_scores(static_cast<size_t>(c.num_heads * c.prompt)) {}

  int64_t num_slots() const { return RoundUp(c.keep.slots() + 1, KvBlockSlots(storage.bits)); }
  int64_t block_bytes() const {
    return KvBlockBytesWithState(c.num_kv_heads, c.head_dim, storage.bits) + kBlockFill;
  }
  const float* q(int64_t token) const { return qkv.data() + token * c.stride(); }
  const float* k(int64_t token) const { return q(token) + c.num_heads * c.head_dim; }
  const float* v(int64_t token) const { return k(token) + c.num_kv_heads * c.head_dim; }
  KvHead<std::byte> head(int64_t kv_head) {
    return {cache.data(), c.num_kv_heads, c.head_dim, kv_head, block_bytes(), storage.bits};
  }
  std::set<int64_t> HeldPositions(int64_t kv_head) {
    std::set<int64_t> held;
    for (int64_t slot = 0; slot < num_held; ++slot) held.insert(*head(kv_head).Position(slot));
    return held;
  }
  // Values of one head of a token's K, or V, once it is stored.
  std::vector<double> RoundedKey(int64_t token, int64_t kv_head) const {
    return Rounded(k(token) + kv_head * c.head_dim, storage.bits.key);
  }
  std::vector<double> RoundedValue(int64_t token, int64_t kv_head) const {
    return Rounded(v(token) + kv_head * c.head_dim, storage.bits.value);
  }
  std::vector<double> Rounded(const float* x, int bits) const {
    AlignedBytes codes(KvCodeBytes(c.head_dim, bits));
    AlignedBytes ranges(KvGroups(c.head_dim) * kKvRangeStride);
    const KvTokenRef token{codes.data(), ranges.data(), c.head_dim, bits, storage.dtype};
    token.Store(x);
    return Elements(token);
  }
  std::vector<double> Elements(const KvTokenRef& token) const {
    std::vector<double> elements;
    for (int64_t d = 0; d < c.head_dim; ++d) elements.push_back(token.At(d));
    return elements;
  }
};

// What a case and its storage say of the tensors.
inline void SetShape(const BudgetCase& c, const KvStorage& storage, AttentionTensors& tensors) {
  tensors.qkv_stride = c.stride();
  tensors.num_heads = c.num_heads;
  tensors.num_kv_heads = c.num_kv_heads;
  tensors.head_dim = c.head_dim;
  tensors.scale = c.scale();
  tensors.kv_dtype = storage.dtype;
  tensors.kv_bits = storage.bits;
}

// All chunks of the prompt, then the compaction.
inline void Prefill(BudgetRow& row, int64_t chunk, int num_threads, Isa isa) {
  const BudgetCase& c = row.c;
  AttentionArgs args;
  SetShape(c, row.storage, args);
  args.out_stride = c.num_heads * c.head_dim;
  args.sinks = row.sinks.empty() ? nullptr : row.sinks.data();
  args.token_scores_stride = c.prompt;
  args.window = c.keep.window;
  args.turns = row.turns;
  args.means = row.means;
  const int64_t bytes =
      std::max(AttentionWorkspaceBytesWithScores(c.prompt, c.head_dim, num_threads, isa),
               KvCompactWorkspaceBytes(c.prompt, num_threads));
  AlignedBytes workspace(bytes);
  row.out.assign(static_cast<size_t>(c.prompt * args.out_stride), kPoison);
  for (int64_t begin = 0; begin < c.prompt; begin += chunk) {
    const AttentionRow part{row.prompt_kv.data(),
                            RoundUp(c.prompt, KvBlockSlots(row.storage.bits)),
                            begin,
                            std::min(chunk, c.prompt - begin),
                            0,
                            row.token_scores.data()};
    args.q = row.q(begin);
    args.k = row.k(begin);
    args.v = row.v(begin);
    args.out = row.out.data() + begin * args.out_stride;
    args.rows = {&part, 1};
    Attention(args, workspace.span(), PoolOf(num_threads), isa);
  }
  const KvCompactRow compact_row{row.prompt_kv.data(), row.token_scores.data(), c.prompt,
                                 row.cache.data(),     row.num_slots(),         c.keep};
  KvCompact({{&compact_row, 1},
             c.kind,
             c.prompt,
             c.num_heads,
             c.num_kv_heads,
             c.head_dim,
             row.storage.bits,
             0,
             BudgetRow::kBlockFill},
            workspace.span(), PoolOf(num_threads));
  row.num_held = std::min(c.prompt, c.keep.slots());
  row.position = c.prompt;
}

// One decode step of rows that have one shape and kind, by `step(args)`.
template <typename Function>
void StepAll(const std::vector<BudgetRow*>& rows, Function step) {
  const BudgetCase& c = rows.front()->c;
  std::vector<float> packed;
  std::vector<BudgetAttentionRow> args_rows;
  for (BudgetRow* row : rows) {
    args_rows.push_back({row->cache.data(), row->num_slots(), row->num_held, row->position,
                         row->c.keep, static_cast<int64_t>(args_rows.size()), 0,
                         row->newest_place});
    packed.insert(packed.end(), row->q(row->position), row->q(row->position) + c.stride());
  }
  const int64_t width = c.num_heads * c.head_dim;
  std::vector<float> out(rows.size() * static_cast<size_t>(width + 2), kPoison);
  BudgetAttentionArgs args;
  args.q = packed.data();
  args.k = args.q + width;
  args.v = args.k + c.num_kv_heads * c.head_dim;
  args.out = out.data();
  args.out_stride = width + 2;
  args.rows = args_rows;
  SetShape(c, rows.front()->storage, args);
  args.kv_block_fill = BudgetRow::kBlockFill;
  const std::vector<float>& sinks = rows.front()->sinks;
  args.sinks = sinks.empty() ? nullptr : sinks.data();
  args.kind = c.kind;
  args.turns = rows.front()->turns;
  args.means = rows.front()->means;
  step(args);
  auto at = out.begin();
  for (BudgetRow* row : rows) {
    row->out.assign(at, at + width);
    EXPECT_TRUE(std::isnan(at[width])) << "wrote between rows";
    at += width + 2;
    row->num_held = HeldAfterStep(row->c.keep, row->num_held);
    ++row->position;
  }
}

// The workspace is no larger than it has to be: the sanitizer sees the end of the last worker's.
inline void StepAll(const std::vector<BudgetRow*>& rows, int num_threads, Isa isa) {
  int64_t max_held = 0;
  for (const BudgetRow* row : rows) max_held = std::max(max_held, row->num_held + 1);
  StepAll(rows, [&](const BudgetAttentionArgs& args) {
    AlignedBytes workspace(
        BudgetAttentionWorkspaceBytes(max_held, args.head_dim, num_threads, isa));
    BudgetAttention(args, workspace.span(), PoolOf(num_threads), isa);
  });
}

}  // namespace spillway::kernels
