#include <algorithm>
#include <span>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_isa.h"
#include "kernels/attention/budget_attention.h"
#include "kernels/attention/budget_attention_isa.h"
#include "kernels/attention/held_places.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_head.h"
#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway::kernels {

UpdateBudget UpdateBudgetOf(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return UpdateBudgetAvx512;
  if (isa == Isa::kAvx2) return UpdateBudgetAvx2;
#endif
  static_cast<void>(isa);
  return UpdateBudgetPortable;
}

namespace {

void CheckArgs(const BudgetAttentionArgs& args) {
  SPILLWAY_CHECK(args.num_kv_heads > 0 && args.num_heads % args.num_kv_heads == 0);
  SPILLWAY_CHECK(args.kv_dtype != DType::kF32);
  CheckKvBits(args);
  SPILLWAY_CHECK(args.kind != KvPolicyKind::kFull);
  for (const BudgetAttentionRow& row : args.rows) {
    SPILLWAY_CHECK(!args.turns.exist() ||
                   (row.num_held <= row.newest_place && row.newest_place < args.turns.num_rows));
    SPILLWAY_CHECK(row.kv_head >= 0 && row.kv_head + args.RunHeads() <= args.num_kv_heads);
    SPILLWAY_CHECK(row.num_held < row.num_slots && row.num_slots % KvBlockSlots(args.kv_bits) == 0);
    SPILLWAY_CHECK(row.num_held <= row.keep.slots() && row.keep.recent >= 1);
    SPILLWAY_CHECK(row.keep.heavy >= 0 && row.keep.sinks >= 0);
    SPILLWAY_CHECK(UsesScores(args.kind) || row.keep.heavy == 0);
    SPILLWAY_CHECK(row.num_held <= row.position && row.position <= kMostRowTokens);
    SPILLWAY_CHECK(row.keep.window == 0 ||
                   (row.keep.slots() < row.keep.window && row.keep.sinks == 0));
  }
}

int64_t PaddedSlots(int64_t slots) { return RoundUp(slots, kAttentionKeys); }

constexpr int64_t kMaxQueries = std::max(kAttentionQueries + 1, kDecodeQueries);

// Scratch of one worker: the attention's own; the victims; the weights of the queries of a
// DecodeTask, or the history of an AttentionTask and the weights of its KV head; the weights'
// factors; the rows of a KV head's turns, and what they are found with.
int64_t VictimBytes() { return kDecodeQueries * (kLowestFloats * 4 + 8); }
int64_t NumFactors(int64_t slots) { return PaddedSlots(slots) / kAttentionKeys * kDecodeQueries; }
int64_t ScratchBytes(int64_t max_slots, int64_t head_dim) {
  return AttentionScratchBytes(head_dim) + VictimBytes() +
         (kMaxQueries * PaddedSlots(max_slots) + NumFactors(max_slots)) * 4 +
         PaddedSlots(max_slots) * int64_t{sizeof(int32_t) + 2 * sizeof(HeldToken)};
}

struct Functions {
  const AttentionFunctions& attention;
  UpdateBudget update;
};

// The tensors of the KV heads from `kv_head` on that a row's cache holds.
AttentionArgs TensorsOfRun(const BudgetAttentionArgs& args, int64_t kv_head) {
  AttentionArgs run = {args, {}, 0, 0};  // rows are set task by task
  const int64_t group = args.num_heads / args.num_kv_heads;
  run.num_kv_heads = args.RunHeads();
  run.num_heads = group * run.num_kv_heads;
  run.q += kv_head * group * args.head_dim;
  run.k += kv_head * args.head_dim;
  run.v += kv_head * args.head_dim;
  run.out += kv_head * group * args.head_dim;
  if (run.sinks != nullptr) run.sinks += kv_head * group;
  run.means = run.means.From(kv_head, args.head_dim);
  return run;
}

// Neighbouring KV heads of one row's cache, counted from its first.
struct Step {
  const BudgetAttentionRow& row;
  const KvPolicyKind kind;
  AttentionArgs args;  // of the cache's heads
  int64_t kv_head_begin;
  int64_t kv_head_end;
  AttentionRow plain_row;
  std::byte* scratch;

  Step(const BudgetAttentionArgs& budget_args, int64_t row_index, int64_t first_head,
       int64_t end_head, std::byte* worker_scratch);
  int64_t num_held() const { return row.num_held + 1; }
  int64_t group() const { return args.num_heads / args.num_kv_heads; }
  int64_t BlockBytes() const {
    return KvBlockBytesWithState(args.num_kv_heads, args.head_dim, args.kv_bits) +
           args.kv_block_fill;
  }
  KvHead<std::byte> Head(int64_t kv_head) const {
    return {row.kv, args.num_kv_heads, args.head_dim, kv_head, BlockBytes(), args.kv_bits};
  }
  const std::byte* FirstKeys() const { return Head(kv_head_begin).Key(0); }
  float* lowest() const {
    return reinterpret_cast<float*>(scratch + AttentionScratchBytes(args.head_dim));
  }
  int64_t* victims() const {
    return reinterpret_cast<int64_t*>(lowest() + kDecodeQueries * kLowestFloats);
  }
  float* history() const { return reinterpret_cast<float*>(victims() + kDecodeQueries); }
  // Weights of all queries, or for an AttentionTask their sums over the group's heads; null where
  // scores do not matter.
  float* weights() const {
    if (!UsesScores(kind)) return nullptr;
    return group() <= kDecodeQueries ? history()
                                     : history() + kAttentionQueries * PaddedSlots(num_held());
  }
  float* factors() const { return history() + kMaxQueries * PaddedSlots(num_held()); }
  // Where keys are turned, of a task's one KV head: the row of each slot's turn.
  HeldToken* held() const {
    return reinterpret_cast<HeldToken*>(factors() + NumFactors(num_held()));
  }
  int32_t* turn_rows() const {
    if (!args.turns.exist()) return nullptr;
    return reinterpret_cast<int32_t*>(held() + 2 * PaddedSlots(num_held()));
  }
  void FindTurns() const;
  AttentionTask Task(int64_t kv_head) const;
  void Store(const AttentionFunctions& attention) const;
  DecodeTask Decode(const std::byte* next_keys) const;
  BudgetTask Budget() const;
  void AttendGroup(const AttentionFunctions& attention) const;
  void AttendAndUpdate(const Functions& functions, const std::byte* next_keys) const;
  void Evict() const;
  void MoveNewTokenTo(const KvHead<std::byte>& head, int64_t slot) const;
};

Step::Step(const BudgetAttentionArgs& budget_args, int64_t row_index, int64_t first_head,
           int64_t end_head, std::byte* worker_scratch)
    : row(budget_args.rows[static_cast<size_t>(row_index)]),
      kind(budget_args.kind),
      args(TensorsOfRun(budget_args, row.kv_head)),
      kv_head_begin(first_head),
      kv_head_end(end_head),
      plain_row{row.kv, row.num_slots, row.num_held, 1, row.token_offset, nullptr},
      scratch(worker_scratch) {}

// The task's history overlaps the victims, which are not known before the scores are updated.
AttentionTask Step::Task(int64_t kv_head) const {
  return {.args = &args,
          .row = &plain_row,
          .kv_head = kv_head,
          .scratch = reinterpret_cast<float*>(scratch),
          .block_bytes = BlockBytes(),
          .scores = weights(),
          .scores_stride = 0,  // all heads of the group into one
          .turn_rows = turn_rows(),
          .has_state = true};
}

void Step::FindTurns() const {
  const KvHead<std::byte> head = Head(kv_head_begin);
  FindPlaces({num_held(), row.keep.recent, row.position, row.newest_place},
             [&](int64_t slot) { return *head.Position(slot); },
             {held(), static_cast<std::size_t>(2 * num_held())},
             {turn_rows(), static_cast<std::size_t>(num_held())});
}

void Step::Store(const AttentionFunctions& attention) const {
  for (int64_t kv_head = kv_head_begin; kv_head < kv_head_end; ++kv_head) {
    attention.store_kv(Task(kv_head));
    *Head(kv_head).Score(row.num_held) = 0.0F;
    *Head(kv_head).Position(row.num_held) = static_cast<int32_t>(row.position);
  }
}

DecodeTask Step::Decode(const std::byte* next_keys) const {
  return {.args = &args,
          .row = &plain_row,
          .kv_head_begin = kv_head_begin,
          .kv_head_end = kv_head_end,
          .scratch = reinterpret_cast<float*>(scratch),
          .block_bytes = BlockBytes(),
          .next_keys = next_keys,
          .weights = weights(),
          .factors = factors(),
          .has_state = true,
          .turn_rows = turn_rows()};
}

// Attends to one KV head.
void Step::AttendGroup(const AttentionFunctions& attention) const {
  AttentionTask task = Task(kv_head_begin);
  if (task.scores != nullptr) {
    std::fill_n(task.scores, PaddedSlots(num_held()), 0.0F);
    std::fill_n(factors(), NumFactors(num_held()), 1.0F);
  }
  for (int64_t query = 0; query < group(); query += kAttentionQueries) {
    task.query_begin = query;
    task.query_end = std::min(group(), query + kAttentionQueries);
    attention.attend(task);
  }
}

BudgetTask Step::Budget() const {
  const KvHead<std::byte> first = Head(kv_head_begin);
  const PositionRange candidates = Candidates(kind, row.keep, row.position);
  return {.scores = reinterpret_cast<std::byte*>(first.Score(0)),
          .positions = reinterpret_cast<std::byte*>(first.Position(0)),
          .head_bytes = first.block_slots() * 4,
          .block_bytes = first.block_bytes,
          .block_slots = first.block_slots(),
          .num_heads = kv_head_end - kv_head_begin,
          .num_held = num_held(),
          .weights = weights(),
          .factors = factors(),
          .group = group() <= kDecodeQueries ? group() : 1,
          .first_candidate = candidates.first,
          .last_candidate = candidates.last,
          .first_seen = FirstSeen(row.keep, row.position + 1),
          .lowest = lowest(),
          .victims = victims()};
}

// Scores are updated after all slots, when every weight is known. Reading all keys first would let
// them be updated while the values are read, but would waste the values that the processor's
// prefetcher takes in past the end of a block's keys.
void Step::AttendAndUpdate(const Functions& functions, const std::byte* next_keys) const {
  if (args.turns.exist()) FindTurns();
  if (group() > kDecodeQueries) {
    AttendGroup(functions.attention);
  } else {
    functions.attention.decode(Decode(next_keys));
  }
  functions.update(Budget());
}

void Step::Evict() const {
  if (num_held() <= row.keep.slots()) return;
  for (int64_t kv_head = kv_head_begin; kv_head < kv_head_end; ++kv_head) {
    const int64_t victim = victims()[kv_head - kv_head_begin];
    SPILLWAY_CHECK(victim >= 0 && victim < row.num_held);
    MoveNewTokenTo(Head(kv_head), victim);
  }
}

void Step::MoveNewTokenTo(const KvHead<std::byte>& head, int64_t slot) const {
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
  const Functions functions = {AttentionFunctionsOf(isa), UpdateBudgetOf(isa)};
  const auto num_rows = static_cast<int64_t>(args.rows.size());
  const int64_t heads = args.turns.exist()
                            ? 1  // whose tokens have places of their own
                            : DecodeHeads(TensorsOfRun(args, 0), num_rows, pool.num_threads());
  const int64_t tasks_per_row = DivideUp(args.RunHeads(), heads);
  auto step_of = [&](int64_t index, int worker) {
    const int64_t begin = index % tasks_per_row * heads;
    return Step(args, index / tasks_per_row, begin, std::min(begin + heads, args.RunHeads()),
                workspace.data() + worker * scratch_bytes);
  };
  auto run = [&](int64_t index, int worker) {
    const Step step = step_of(index, worker);
    const int64_t next = pool.NextTask(index);
    step.Store(functions.attention);
    step.AttendAndUpdate(functions, next < 0 ? nullptr : step_of(next, worker).FirstKeys());
    step.Evict();
  };
  pool.Run(num_rows * tasks_per_row, run);
}

}  // namespace spillway::kernels
