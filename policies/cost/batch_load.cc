#include "policies/cost/batch_load.h"

#include <algorithm>

#include "spillway/round.h"

namespace spillway {
namespace {

// Requires: `load` counts the rows. Rows whose places are not known lie one behind the other.
LoggedRows Logged(const RowGroup& rows, int64_t num_kept, const KvLoad& load) {
  return {rows.num_past, rows.num_past - rows.shape.prompt_tokens, num_kept, rows.count,
          rows.log_end > 0 ? rows.log_end : load.decoding_rows};
}

void Add(const Plan& plan, int64_t kv_class, const RowGroup& rows, KvLoad& load) {
  const KvKeep keep = plan.RowKeep(kv_class, rows.shape.slots());
  const int64_t kept = keep.slots();
  const int64_t held = std::min(rows.num_past, kept);  // before the pass
  const SlotRange changed =
      ChangedSlots(plan.kept.kind, keep, {rows.shape.prompt_tokens, rows.num_past, rows.NumNew()});
  const int64_t align = plan.slot_align[rows.kv_tier];
  load.loaded_slots += rows.count * RoundUp(held, align);
  const int64_t stored = rows.count * (RoundUp(changed.end, align) - changed.begin / align * align);
  load.stored_slots += stored;
  if (rows.num_past == 0) load.prompt_slots += stored;
  load.new_tokens += rows.count * std::min(kept, rows.NumNew());
  if (rows.num_past > 0) {
    load.attended_tokens += rows.count * (held + 1);
    load.decoding_rows += rows.count;
    if (plan.Logs(rows.kv_tier)) load.logged.push_back(Logged(rows, kept, load));
  } else {
    load.prompt_pairs += rows.count * PromptPairs(rows.shape.prompt_tokens, keep.window);
  }
}

}  // namespace

int64_t PromptPairs(int64_t prompt, int64_t window) {
  const int64_t within = window == 0 ? prompt : std::min(prompt, window);
  return within * (within + 1) / 2 + (prompt - within) * window;
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
