#include <algorithm>

#include "kernels/attention.h"
#include "kernels/attention_isa.h"
#include "spillway/error.h"

namespace spillway::kernels {

const AttentionFunctions& AttentionFunctionsOf(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return kAttentionAvx512;
  if (isa == Isa::kAvx2) return kAttentionAvx2;
#endif
  static_cast<void>(isa);
  return kAttentionPortable;
}

int64_t AttentionRunLength(int64_t num_tasks, int num_threads) {
  return std::clamp<int64_t>(num_tasks / (8 * num_threads), 1, 8);
}

const std::byte* AttentionKeys(const AttentionTask& task) {
  const int64_t token_bytes = KvTokenBytes(task.args->head_dim, task.args->kv_bits);
  return task.row->kv + task.kv_head * KvBlockSlots(task.args->kv_bits) * token_bytes;
}

void PrefetchInputs(const AttentionTask& task) {
  const AttentionArgs& args = *task.args;
  const int64_t group = args.num_heads / args.num_kv_heads;
  auto prefetch = [&](const float* values, int64_t head, int64_t num_heads) {
    values += task.row->token_offset * args.qkv_stride + head * args.head_dim;
    for (int64_t i = 0; i < num_heads * args.head_dim; i += 16) __builtin_prefetch(values + i);
  };
  prefetch(args.q, task.kv_head * group, group);
  prefetch(args.k, task.kv_head, 1);
  prefetch(args.v, task.kv_head, 1);
}

namespace {

void CheckArgs(const AttentionArgs& args) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  SPILLWAY_CHECK(args.kv_dtype != DType::kF32);
  SPILLWAY_CHECK(args.kv_bits == 16 || args.kv_bits == 8 || args.kv_bits == 4);
  for (const AttentionRow& row : args.rows) {
    SPILLWAY_CHECK(row.num_past + row.num_new <= row.num_slots);
    SPILLWAY_CHECK(row.num_slots % KvBlockSlots(args.kv_bits) == 0);
    if (row.token_scores == nullptr) continue;
    SPILLWAY_CHECK(row.num_past + row.num_new <= args.token_scores_stride);
  }
}

// Of one worker.
int64_t ScratchBytes(const AttentionArgs& args) {
  int64_t scored_slots = 0;
  for (const AttentionRow& row : args.rows) {
    if (row.token_scores != nullptr)
      scored_slots = std::max(scored_slots, row.num_past + row.num_new);
  }
  return AttentionScratchBytes(args.head_dim) + AttentionHistoryBytes(scored_slots);
}

}  // namespace

int64_t AttentionWorkspaceBytes(int64_t /*max_slots*/, int64_t head_dim, int num_threads,
                                Isa /*isa*/) {
  return num_threads * AttentionScratchBytes(head_dim);
}

int64_t AttentionWorkspaceBytesWithScores(int64_t max_slots, int64_t head_dim, int num_threads,
                                          Isa /*isa*/) {
  return num_threads * (AttentionScratchBytes(head_dim) + AttentionHistoryBytes(max_slots));
}

void Attention(const AttentionArgs& args, std::span<std::byte> workspace, ThreadPool& pool,
               Isa isa) {
  if (args.rows.empty()) return;
  const int64_t scratch_bytes = ScratchBytes(args);
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >= pool.num_threads() * scratch_bytes);
  SPILLWAY_CHECK(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0);
  CheckArgs(args);
  const AttentionFunctions& functions = AttentionFunctionsOf(isa);
  const int64_t num_pairs =
      static_cast<int64_t>(args.rows.size()) * args.num_kv_heads;  // (row, KV head)
  const int64_t group = args.num_heads / args.num_kv_heads;
  auto task_of = [&](int64_t pair, int worker) {
    const AttentionRow* row = &args.rows[static_cast<size_t>(pair / args.num_kv_heads)];
    std::byte* scratch = workspace.data() + worker * scratch_bytes;
    const int64_t kv_head = pair % args.num_kv_heads;
    float* scores = row->token_scores == nullptr
                        ? nullptr
                        : row->token_scores + kv_head * group * args.token_scores_stride;
    return AttentionTask{
        .args = &args,
        .row = row,
        .kv_head = kv_head,
        .scratch = reinterpret_cast<float*>(scratch),
        .block_bytes = KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits),
        .scores = scores,
        .scores_stride = args.token_scores_stride};
  };
  int64_t max_new = 0;
  for (const AttentionRow& row : args.rows) max_new = std::max(max_new, row.num_new);
  // Few rows: their blocks of queries are dealt out in `parts`, every parts-th to a task, so that
  // late blocks, which see more slots, are spread evenly.
  const int64_t max_blocks = (max_new * group + kAttentionQueries - 1) / kAttentionQueries;
  const int64_t wanted = (4 * pool.num_threads() + num_pairs - 1) / num_pairs;
  // Scores are added up in order of the queries, so these stay in one task.
  const bool scored = scratch_bytes > AttentionScratchBytes(args.head_dim);
  const int64_t parts = scored ? 1 : std::max<int64_t>(1, std::min(max_blocks, wanted));
  const int64_t run = max_new > 1 ? 1 : AttentionRunLength(num_pairs * parts, pool.num_threads());
  auto attend_pair = [&](int64_t index, int worker, bool followed) {
    AttentionTask task = task_of(index / parts, worker);
    if (followed) {
      const AttentionTask next = task_of(index + 1, worker);
      task.next_keys = AttentionKeys(next);
      PrefetchInputs(next);
    }
    // With one part nobody else reads this head's new tokens, so they are stored here and are still
    // in the cache.
    if (parts == 1) functions.store_kv(task);
    const int64_t num_queries = task.row->num_new * group;
    for (int64_t query = index % parts * kAttentionQueries; query < num_queries;
         query += parts * kAttentionQueries) {
      task.query_begin = query;
      task.query_end = std::min(num_queries, query + kAttentionQueries);
      functions.attend(task);
    }
  };
  auto attend = [&](int64_t index, int worker) {
    const int64_t end = std::min((index + 1) * run, num_pairs * parts);
    for (int64_t pair = index * run; pair < end; ++pair)
      attend_pair(pair, worker, run > 1 && pair + 1 < end);
  };
  if (parts > 1) {
    auto store = [&](int64_t pair, int worker) { functions.store_kv(task_of(pair, worker)); };
    pool.Run(num_pairs, store);
  }
  pool.Run((num_pairs * parts + run - 1) / run, attend);
}

}  // namespace spillway::kernels
