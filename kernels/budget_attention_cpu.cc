#include <algorithm>

#include "kernels/attention.h"
#include "kernels/attention_isa.h"
#include "kernels/budget_attention.h"
#include "kernels/budget_attention_isa.h"
#include "kernels/kv_eviction.h"
#include "kernels/kv_head.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int64_t kMaxPosition = int64_t{1} << 24;  // positions are compared as floats

using UpdateBudget = int64_t (*)(const BudgetTask& task);

UpdateBudget UpdateBudgetOf(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return UpdateBudgetAvx512;
  if (isa == Isa::kAvx2) return UpdateBudgetAvx2;
#endif
  static_cast<void>(isa);
  return UpdateBudgetPortable;
}

void CheckArgs(const BudgetAttentionArgs& args) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  SPILLWAY_CHECK(args.kv_dtype != DType::kF32);
  SPILLWAY_CHECK(args.kv_bits == 16 || args.kv_bits == 8 || args.kv_bits == 4);
  SPILLWAY_CHECK(args.kind != KvPolicyKind::kFull);
  for (const BudgetAttentionRow& row : args.rows) {
    SPILLWAY_CHECK(row.num_held < row.num_slots && row.num_slots % KvBlockSlots(args.kv_bits) == 0);
    SPILLWAY_CHECK(row.num_held <= row.keep.slots() && row.keep.recent >= 1);
    SPILLWAY_CHECK(row.keep.heavy >= 0 && row.keep.sinks >= 0);
    SPILLWAY_CHECK(UsesScores(args.kind) || row.keep.heavy == 0);
    SPILLWAY_CHECK(row.num_held <= row.position && row.position < kMaxPosition);
  }
}

// What Attention knows of these args; its rows are set task by task.
AttentionArgs PlainArgs(const BudgetAttentionArgs& args) {
  AttentionArgs plain;
  plain.q = args.q;
  plain.k = args.k;
  plain.v = args.v;
  plain.qkv_stride = args.qkv_stride;
  plain.out = args.out;
  plain.out_stride = args.out_stride;
  plain.num_heads = args.num_heads;
  plain.num_kv_heads = args.num_kv_heads;
  plain.head_dim = args.head_dim;
  plain.scale = args.scale;
  plain.kv_dtype = args.kv_dtype;
  plain.kv_bits = args.kv_bits;
  return plain;
}

int64_t PaddedSlots(int64_t slots) {
  return (slots + kAttentionKeys - 1) / kAttentionKeys * kAttentionKeys;
}

// Of one worker: the attention's own with its history, then [padded slots] weights.
int64_t ScratchBytes(int64_t max_slots, int64_t head_dim) {
  return AttentionScratchBytes(head_dim) + AttentionHistoryBytes(max_slots) +
         PaddedSlots(max_slots) * 4;
}

// One row and KV head of a call.
struct Step {
  const BudgetAttentionArgs& args;
  const AttentionArgs& plain;
  const BudgetAttentionRow& row;
  KvHead<std::byte> head;
  AttentionRow plain_row;
  std::byte* scratch;

  Step(const BudgetAttentionArgs& budget_args, const AttentionArgs& plain_args, int64_t pair,
       std::byte* worker_scratch);
  int64_t num_held() const { return row.num_held + 1; }
  // [num_held rounded up], the sums over the group's heads; null where scores do not matter.
  float* weights() const {
    if (!UsesScores(args.kind)) return nullptr;
    return reinterpret_cast<float*>(scratch + AttentionScratchBytes(args.head_dim) +
                                    AttentionHistoryBytes(num_held()));
  }
  AttentionTask Task() const;
  void Prefetch() const;
  void Attend(const AttentionFunctions& functions, const Step* next) const;
  void UpdateState(UpdateBudget update) const;
  void MoveNewTokenTo(int64_t slot) const;
};

Step::Step(const BudgetAttentionArgs& budget_args, const AttentionArgs& plain_args, int64_t pair,
           std::byte* worker_scratch)
    : args(budget_args),
      plain(plain_args),
      row(args.rows[static_cast<size_t>(pair / args.num_kv_heads)]),
      head{row.kv,
           args.num_kv_heads,
           args.head_dim,
           pair % args.num_kv_heads,
           KvBlockBytesWithState(args.num_kv_heads, args.head_dim, args.kv_bits),
           args.kv_bits},
      plain_row{row.kv, row.num_slots, row.num_held, 1, row.token_offset, nullptr},
      scratch(worker_scratch) {}

AttentionTask Step::Task() const {
  return {.args = &plain,
          .row = &plain_row,
          .kv_head = head.kv_head,
          .scratch = reinterpret_cast<float*>(scratch),
          .block_bytes = head.block_bytes,
          .scores = weights(),
          .scores_stride = 0};  // all heads of the group into one
}

// What this step touches besides K and V: the inputs, and a line or two of each block, which lie
// too far apart for a hardware prefetcher.
void Step::Prefetch() const {
  PrefetchInputs(Task());
  for (int64_t slot = 0; slot < num_held(); slot += head.block_slots()) {
    __builtin_prefetch(head.Score(slot), 1, 2);
    if (head.block_slots() != kKvBlockSlots) __builtin_prefetch(head.Position(slot), 0, 2);
  }
}

void Step::Attend(const AttentionFunctions& functions, const Step* next) const {
  AttentionTask task = Task();
  if (next != nullptr) {
    task.next_keys = next->head.Key(0);
    next->Prefetch();
  }
  functions.store_kv(task);
  if (task.scores != nullptr) std::fill_n(task.scores, PaddedSlots(num_held()), 0.0F);
  const int64_t group = args.num_heads / args.num_kv_heads;
  for (int64_t query = 0; query < group; query += kAttentionQueries) {
    task.query_begin = query;
    task.query_end = std::min(group, query + kAttentionQueries);
    functions.attend(task);
  }
}

void Step::UpdateState(UpdateBudget update) const {
  *head.Score(row.num_held) = 0.0F;
  *head.Position(row.num_held) = static_cast<int32_t>(row.position);
  const PositionRange candidates = Candidates(args.kind, row.keep, row.position);
  const BudgetTask task{.scores = reinterpret_cast<std::byte*>(head.Score(0)),
                        .positions = reinterpret_cast<std::byte*>(head.Position(0)),
                        .block_bytes = head.block_bytes,
                        .block_slots = head.block_slots(),
                        .num_held = num_held(),
                        .weights = weights(),
                        .first_candidate = candidates.first,
                        .last_candidate = candidates.last};
  const int64_t victim = update(task);
  if (num_held() <= row.keep.slots()) return;
  SPILLWAY_CHECK(victim >= 0 && victim < row.num_held);
  MoveNewTokenTo(victim);
}

void Step::MoveNewTokenTo(int64_t slot) const {
  CopyToken(head, row.num_held, head, slot);
  *head.Score(slot) = *head.Score(row.num_held);
  *head.Position(slot) = *head.Position(row.num_held);
}

}  // namespace

int64_t BudgetAttentionWorkspaceBytes(int64_t max_slots, int64_t head_dim, int num_threads,
                                      Isa /*isa*/) {
  return num_threads * ScratchBytes(max_slots, head_dim);
}

void BudgetAttention(const BudgetAttentionArgs& args, std::span<std::byte> workspace,
                     ThreadPool& pool, Isa isa) {
  if (args.rows.empty()) return;
  CheckArgs(args);
  int64_t max_held = 0;
  for (const BudgetAttentionRow& row : args.rows) max_held = std::max(max_held, row.num_held + 1);
  const int64_t scratch_bytes = ScratchBytes(max_held, args.head_dim);
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >= pool.num_threads() * scratch_bytes);
  SPILLWAY_CHECK(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0);
  const AttentionFunctions& attention = AttentionFunctionsOf(isa);
  const UpdateBudget update = UpdateBudgetOf(isa);
  const AttentionArgs plain = PlainArgs(args);
  const int64_t num_pairs = static_cast<int64_t>(args.rows.size()) * args.num_kv_heads;
  const int64_t run_length = AttentionRunLength(num_pairs, pool.num_threads());
  auto run = [&](int64_t index, int worker) {
    std::byte* scratch = workspace.data() + worker * scratch_bytes;
    const int64_t end = std::min((index + 1) * run_length, num_pairs);
    Step(args, plain, index * run_length, scratch).Prefetch();
    for (int64_t pair = index * run_length; pair < end; ++pair) {
      const Step step(args, plain, pair, scratch);
      const Step next(args, plain, std::min(pair + 1, end - 1), scratch);
      step.Attend(attention, pair + 1 < end ? &next : nullptr);
      step.UpdateState(update);
    }
  };
  pool.Run((num_pairs + run_length - 1) / run_length, run);
}

}  // namespace spillway::kernels
