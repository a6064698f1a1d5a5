#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_isa.h"
#include "kernels/kv/kv_head.h"
#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway::kernels {

const AttentionFunctions& AttentionFunctionsOf(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa > Isa::kAvx512) return kAttentionVnni;
  if (isa == Isa::kAvx512) return kAttentionAvx512;
  if (isa == Isa::kAvx2) return kAttentionAvx2;
#endif
  static_cast<void>(isa);
  return kAttentionPortable;
}

int64_t DecodeHeads(const AttentionArgs& args, int64_t num_rows, int num_threads) {
  constexpr int64_t kRunBytes = int64_t{64} << 10;
  const int64_t group = args.num_heads / args.num_kv_heads;
  if (group > kDecodeQueries) return 1;
  const int widest = std::max(args.kv_bits.key, args.kv_bits.value);
  const int64_t head_bytes = KvBlockSlots(args.kv_bits) * KvTokenBytes(args.head_dim, widest);
  const int64_t most = std::clamp<int64_t>(kRunBytes / head_bytes, 1, kDecodeQueries / group);
  const int64_t fitting = DivideUp(args.num_kv_heads, most);
  const int64_t busy = DivideUp(4 * num_threads, num_rows);  // tasks of a row that keep all at work
  return DivideUp(args.num_kv_heads, std::min(std::max(fitting, busy), args.num_kv_heads));
}

void CheckKvBits(const AttentionTensors& args) {
  const auto is_stored = [](int bits) { return bits == 16 || bits == 8 || bits == 4; };
  SPILLWAY_CHECK(is_stored(args.kv_bits.key) && is_stored(args.kv_bits.value));
  SPILLWAY_CHECK(!args.means.exist() || (args.kv_bits.key == 4 && !args.turns.exist()));
}

namespace {

void CheckArgs(const AttentionArgs& args) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  SPILLWAY_CHECK(args.kv_dtype != DType::kF32);
  SPILLWAY_CHECK(args.window >= 0 && args.soft_cap >= 0.0F);
  CheckKvBits(args);
  for (const AttentionRow& row : args.rows) {
    SPILLWAY_CHECK(row.num_past + row.num_new <= row.num_slots);
    SPILLWAY_CHECK(row.num_slots % KvBlockSlots(args.kv_bits) == 0);
    SPILLWAY_CHECK(row.prefix_slots % kPrefixStep == 0 && row.prefix_slots <= row.num_past);
    if (row.token_scores == nullptr) continue;
    SPILLWAY_CHECK(row.num_past + row.num_new <= args.token_scores_stride);
  }
}

// Bytes of scratch of one worker.
int64_t ScratchBytes(const AttentionArgs& args) {
  int64_t scored_slots = 0;
  for (const AttentionRow& row : args.rows) {
    if (row.token_scores != nullptr)
      scored_slots = std::max(scored_slots, row.num_past + row.num_new);
  }
  return AttentionScratchBytes(args.head_dim) + AttentionHistoryBytes(scored_slots);
}

struct Split {
  int64_t num_pairs;  // (row, KV head)
  int64_t parts;      // of each pair's blocks of queries
};

// Few rows: their blocks of queries are dealt out in `parts`, every parts-th to a task, so that
// late blocks, which see more slots, are spread evenly. Scores are added up in order of the
// queries, so these stay in one task.
Split SplitPairs(const AttentionArgs& args, bool scored, int num_threads) {
  const int64_t num_pairs = static_cast<int64_t>(args.rows.size()) * args.num_kv_heads;
  if (scored) return {num_pairs, 1};
  const int64_t group = args.num_heads / args.num_kv_heads;
  int64_t max_new = 0;
  for (const AttentionRow& row : args.rows) max_new = std::max(max_new, row.num_new);
  const int64_t max_blocks = DivideUp(max_new * group, kAttentionQueries);
  const int64_t wanted = DivideUp(4 * num_threads, num_pairs);
  return {num_pairs, std::max<int64_t>(1, std::min(max_blocks, wanted))};
}

// One call of Attention.
struct Call {
  const AttentionArgs& args;
  const AttentionFunctions& functions;
  std::byte* workspace;
  int64_t scratch_bytes;  // of one worker
  bool scored;
  ThreadPool& pool;

  int64_t group() const { return args.num_heads / args.num_kv_heads; }
  int64_t BlockBytes() const {
    return KvBlockBytes(args.num_kv_heads, args.head_dim, args.kv_bits) + args.kv_block_fill;
  }
  float* Scratch(int worker) const {
    return reinterpret_cast<float*>(workspace + worker * scratch_bytes);
  }
  AttentionTask TaskOf(int64_t pair, int worker) const;
  const std::byte* FirstKeys(int64_t row, int64_t kv_head) const {
    const AttentionRow& of = args.rows[static_cast<size_t>(row)];
    const std::byte* kv = of.prefix_slots > 0 ? of.prefix : of.kv;
    return KvHead<const std::byte>{kv,      args.num_kv_heads, args.head_dim,
                                   kv_head, BlockBytes(),      args.kv_bits}
        .Key(0);
  }
  bool OnlyDecodes() const;
  void Decode() const;
  void Attend() const;
};

AttentionTask Call::TaskOf(int64_t pair, int worker) const {
  const AttentionRow* row = &args.rows[static_cast<size_t>(pair / args.num_kv_heads)];
  const int64_t kv_head = pair % args.num_kv_heads;
  float* scores = row->token_scores == nullptr
                      ? nullptr
                      : row->token_scores + kv_head * group() * args.token_scores_stride;
  return {.args = &args,
          .row = row,
          .kv_head = kv_head,
          .scratch = Scratch(worker),
          .block_bytes = BlockBytes(),
          .scores = scores,
          .scores_stride = args.token_scores_stride};
}

bool Call::OnlyDecodes() const {
  const auto decodes = [&](const AttentionRow& row) {
    return row.num_new == 1 && (args.window == 0 || row.num_past < args.window);
  };
  return !scored && group() <= kDecodeQueries && std::ranges::all_of(args.rows, decodes);
}

void Call::Decode() const {
  const auto num_rows = static_cast<int64_t>(args.rows.size());
  const int64_t heads = DecodeHeads(args, num_rows, pool.num_threads());
  const int64_t tasks_per_row = DivideUp(args.num_kv_heads, heads);
  auto decode = [&](int64_t index, int worker) {
    const int64_t row = index / tasks_per_row;
    const int64_t begin = index % tasks_per_row * heads;
    const int64_t end = std::min(begin + heads, args.num_kv_heads);
    for (int64_t kv_head = begin; kv_head < end; ++kv_head)
      functions.store_kv(TaskOf(row * args.num_kv_heads + kv_head, worker));
    const int64_t next = pool.NextTask(index);
    functions.decode(
        {.args = &args,
         .row = &args.rows[static_cast<size_t>(row)],
         .kv_head_begin = begin,
         .kv_head_end = end,
         .scratch = Scratch(worker),
         .block_bytes = BlockBytes(),
         .next_keys =
             next < 0 ? nullptr : FirstKeys(next / tasks_per_row, next % tasks_per_row * heads)});
  };
  pool.Run(num_rows * tasks_per_row, decode);
}

void Call::Attend() const {
  const auto [num_pairs, parts] = SplitPairs(args, scored, pool.num_threads());
  auto store = [&](int64_t pair, int worker) { functions.store_kv(TaskOf(pair, worker)); };
  auto attend = [&, num_parts = parts](int64_t index, int worker) {
    AttentionTask task = TaskOf(index / num_parts, worker);
    // One part: no other task reads this head's new tokens, so they are stored here, and the
    // attention that follows finds them in the processor's cache.
    if (num_parts == 1) functions.store_kv(task);
    const int64_t num_queries = task.row->num_new * group();
    for (int64_t query = index % num_parts * kAttentionQueries; query < num_queries;
         query += num_parts * kAttentionQueries) {
      task.query_begin = query;
      task.query_end = std::min(num_queries, query + kAttentionQueries);
      functions.attend(task);
      pool.Tick();  // a long prompt's task may take minutes
    }
  };
  if (parts > 1) pool.Run(num_pairs, store);
  pool.Run(num_pairs * parts, attend);
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
  const bool scored = scratch_bytes > AttentionScratchBytes(args.head_dim);
  const Call call{args, AttentionFunctionsOf(isa), workspace.data(), scratch_bytes, scored, pool};
  if (call.OnlyDecodes()) return call.Decode();
  call.Attend();
}

}  // namespace spillway::kernels
