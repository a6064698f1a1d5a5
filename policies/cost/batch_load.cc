#include "policies/cost/batch_load.h"

#include <algorithm>

#include "spillway/round.h"

namespace spillway {
namespace {

int64_t NumKvLoads(const Plan& plan) {
  return plan.policy.kv.layer_budgets.empty() ? 1 : plan.shape.num_layers;
}

// Tokens whose KV a row holds after `num_past` of them.
int64_t NumHeld(const Plan& plan, int64_t block, const RowGroup& rows, int64_t num_past) {
  return std::min(num_past, KeepOf(plan.policy.kv, block, rows.shape.slots()).slots());
}

// Rows whose places are not known lie one behind the other. Requires: `load` counts the rows.
LoggedRows Logged(const Plan& plan, int64_t block, const RowGroup& rows, const KvLoad& load) {
  return {rows.num_past, rows.num_past - rows.shape.prompt_tokens,
          KeepOf(plan.policy.kv, block, rows.shape.slots()).slots(), rows.count,
          rows.log_end > 0 ? rows.log_end : load.decoding_rows};
}

void Add(const Plan& plan, int64_t block, const RowGroup& rows, KvLoad& load) {
  const int64_t held = NumHeld(plan, block, rows, rows.num_past);
  const int64_t holds = NumHeld(plan, block, rows, rows.num_past + rows.NumNew());
  // An eviction changes the scores of all that stays.
  const int64_t first_stored = plan.policy.kv.evicts() ? 0 : rows.num_past;
  const int64_t align = plan.slot_align[rows.kv_tier];
  load.loaded_slots += rows.count * RoundUp(held, align);
  const int64_t stored = rows.count * (RoundUp(holds, align) - first_stored / align * align);
  load.stored_slots += stored;
  if (rows.num_past == 0) load.prompt_slots += stored;
  load.new_tokens += rows.count * std::min(holds, rows.NumNew());
  if (rows.num_past > 0) {
    load.attended_tokens += rows.count * (held + 1);
    load.decoding_rows += rows.count;
    if (plan.Logs(rows.kv_tier)) load.logged.push_back(Logged(plan, block, rows, load));
  } else {
    const int64_t prompt = rows.shape.prompt_tokens;
    load.prompt_pairs += rows.count * (prompt * (prompt + 1) / 2);
  }
}

}  // namespace

BatchLoad LoadOf(const Plan& plan, std::span<const RowGroup> rows) {
  BatchLoad load;
  load.kv.resize(static_cast<std::size_t>(NumKvLoads(plan)));
  for (const RowGroup& group : rows) {
    const int64_t tokens = group.count * group.NumNew();
    load.rows += group.count;
    load.tokens += tokens;
    load.hidden_tokens[group.hidden_tier] += tokens;
    if (group.num_past == 0) load.prompt_tokens += tokens;
    for (std::size_t block = 0; block < load.kv.size(); ++block) {
      Add(plan, static_cast<int64_t>(block), group, load.kv[block][group.kv_tier]);
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

int64_t RowSlots(const Plan& plan, Tier tier, const RequestShape& row) {
  return plan.RowSlots(tier, plan.LargestKvClass(row.slots()), row.slots());
}

}  // namespace spillway
