#include "policies/cost/batch_load.h"

#include <algorithm>

#include "spillway/round.h"

namespace spillway {
namespace {

// Requires: `load` counts the rows. Rows whose places are not known lie one behind the other.
LoggedRows Logged(const RowGroup& rows, int64_t kv_class, const KvLoad& load) {
  return {rows.shape, rows.num_past, rows.num_past - rows.shape.prompt_tokens,
          kv_class,   rows.count,    rows.log_end > 0 ? rows.log_end : load.decoding_rows};
}

// Slots in whole blocks of a tier that the ranges of a row's runs lie in, which come in their
// order.
class BlockCount {
 public:
  explicit BlockCount(int64_t align) : align_(align) {}
  void Add(int64_t slot_begin, const SlotRange& slots) {
    if (slots.begin == slots.end) return;
    const int64_t begin = std::max(end_, (slot_begin + slots.begin) / align_);
    end_ = std::max(begin, DivideUp(slot_begin + slots.end, align_));
    slots_ += (end_ - begin) * align_;
  }
  int64_t slots() const { return slots_; }

 private:
  int64_t align_;
  int64_t end_ = 0;  // of the blocks counted
  int64_t slots_ = 0;
};

void Add(const Plan& plan, int64_t kv_class, const RowGroup& rows, KvLoad& load) {
  const int64_t align = plan.slot_align[rows.kv_tier];
  BlockCount loaded(align);
  BlockCount stored(align);
  int64_t window = 0;  // the same for all runs
  ForEachKvRun(plan, kv_class, rows.shape.slots(), [&](const KvRunPlace& run) {
    const int64_t held = run.keep.NumHeld(rows.num_past);  // before the pass
    loaded.Add(run.slot_begin, {0, held});
    stored.Add(run.slot_begin,
               ChangedSlots(plan.kept.kind, run.keep,
                            {rows.shape.prompt_tokens, rows.num_past, rows.NumNew()}));
    load.new_slots += rows.count * run.keep.NumHeld(rows.NumNew());
    if (rows.num_past > 0) load.attended_slots += rows.count * (held + 1);
    window = run.keep.window;
  });
  load.loaded_slots += rows.count * loaded.slots();
  load.stored_slots += rows.count * stored.slots();
  if (rows.num_past == 0) {
    load.prompt_slots += rows.count * stored.slots();
    load.prompt_pairs += rows.count * PromptPairs(rows.shape.prompt_tokens, window);
    return;
  }
  load.decoding_rows += rows.count;
  if (plan.Logs(rows.kv_tier)) load.logged.push_back(Logged(rows, kv_class, load));
}

}  // namespace

int64_t PromptPairs(int64_t prompt, int64_t window) {
  const int64_t within = window == 0 ? prompt : std::min(prompt, window);
  return within * (within + 1) / 2 + (prompt - within) * window;
}

int64_t HeldSlots(const Plan& plan, Tier tier, int64_t kv_class, int64_t row_tokens,
                  int64_t num_tokens) {
  BlockCount held(plan.slot_align[tier]);
  ForEachKvRun(plan, kv_class, row_tokens, [&](const KvRunPlace& run) {
    held.Add(run.slot_begin, {0, run.keep.NumHeld(num_tokens)});
  });
  return held.slots();
}

BatchLoad LoadOf(const Plan& plan, std::span<const RowGroup> rows) {
  BatchLoad load;
  load.kv.resize(plan.kv_classes.size());
  for (const RowGroup& group : rows) {
    const int64_t tokens = group.count * group.NumNew();
    load.rows += group.count;
    load.tokens += tokens;
    load.hidden_tokens[group.hidden_tier] += tokens;
    if (group.num_past == 0) load.prompt_tokens += tokens;
    for (std::size_t kv_class = 0; kv_class < load.kv.size(); ++kv_class) {
      Add(plan, static_cast<int64_t>(kv_class), group, load.kv[kv_class][group.kv_tier]);
    }
  }
  return load;
}

Workload Repeated(const Workload& work, int64_t num_requests) {
  Workload repeated = work;
  repeated.num_requests = num_requests;
  const std::size_t size = work.sample.size();
  while (static_cast<int64_t>(repeated.sample.size()) < num_requests) {
    repeated.sample.push_back(work.sample[repeated.sample.size() % size]);
  }
  return repeated;
}

}  // namespace spillway
