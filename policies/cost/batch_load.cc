#include "policies/cost/batch_load.h"

#include <algorithm>

#include "spillway/kv_block_runs.h"

namespace spillway {
namespace {

// Requires: `load` counts the rows. Rows whose places are not known lie one behind the other.
LoggedRows Logged(const RowGroup& rows, int64_t kv_class, const KvLoad& load) {
  return {rows.shape, rows.num_past, rows.num_past - rows.shape.prompt_tokens,
          kv_class,   rows.count,    rows.log_end > 0 ? rows.log_end : load.decoding_rows};
}

// Visitor of ranges that adds up their blocks.
auto CountInto(int64_t& blocks) {
  return [&blocks](const KvBlockRange& range) { blocks += range.end - range.begin; };
}

void Add(const Plan& plan, int64_t kv_class, std::span<const KvRunPlace> runs, const RowGroup& rows,
         KvLoad& load) {
  const int64_t apart = plan.CachePrefix();
  const RowProgress progress = {rows.shape.prompt_tokens, rows.num_past, rows.NumStored()};
  const int64_t block_slots = plan.slot_align[rows.kv_tier];
  int64_t loaded_blocks = 0;
  int64_t stored_blocks = 0;
  KvBlockRanges held(block_slots, CountInto(loaded_blocks));
  KvBlockRanges changed(block_slots, CountInto(stored_blocks));
  for (const KvRunPlace& run : runs) {
    held.Add(run, {0, run.keep.NumHeld(rows.num_past)});
    changed.Add(run, ChangedSlots(plan.kept.kind, run.keep, progress));
    load.new_slots += rows.count * run.keep.NumHeld(rows.NumStored());
    if (rows.num_past > 0)
      load.attended_slots += rows.count * (apart + run.keep.NumHeld(rows.num_past) + 1);
  }
  held.End();
  changed.End();
  const int64_t stored = rows.count * stored_blocks * block_slots;
  load.loaded_slots += rows.count * loaded_blocks * block_slots;
  load.stored_slots += stored;
  if (rows.num_past == 0) {
    load.prompt_slots += stored;
    const int64_t window = runs.front().keep.window;  // the same for all runs
    load.prompt_pairs += rows.count * (PromptPairs(apart + rows.shape.prompt_tokens, window) -
                                       PromptPairs(apart + rows.shape.prefix_tokens, window));
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
  int64_t blocks = 0;
  ForEachKvBlockRange(
      plan, tier, {kv_class, row_tokens},
      [&](const KvKeep& keep) {
        return SlotRange{0, keep.NumHeld(num_tokens)};
      },
      CountInto(blocks));
  return blocks * plan.slot_align[tier];
}

KvRowRuns RunsOf(const Plan& plan, int64_t row_tokens) {
  KvRowRuns runs(plan.kv_classes.size());
  for (std::size_t kv_class = 0; kv_class < runs.size(); ++kv_class) {
    ForEachKvRun(plan, {static_cast<int64_t>(kv_class), row_tokens},
                 [&](const KvRunPlace& run) { runs[kv_class].push_back(run); });
  }
  return runs;
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
    const KvRowRuns found = group.runs ? KvRowRuns() : RunsOf(plan, group.shape.slots());
    const KvRowRuns& runs = group.runs ? *group.runs : found;
    for (std::size_t kv_class = 0; kv_class < load.kv.size(); ++kv_class) {
      Add(plan, static_cast<int64_t>(kv_class), runs[kv_class], group,
          load.kv[kv_class][group.kv_tier]);
    }
  }
  return load;
}

BatchLoad PrefixLoad(const Plan& plan) {
  const int64_t num_tokens = plan.prefix.num_tokens();
  if (num_tokens == 0) return {};
  const RowGroup row = {{num_tokens, 0}, 0, plan.device(), plan.device(), 1};
  BatchLoad load = LoadOf(plan, std::span(&row, 1));
  for (std::size_t kv_class = 0; kv_class < load.kv.size(); ++kv_class) {
    const KvKeep keep = plan.RunKeep(static_cast<int64_t>(kv_class), 0, plan.longest.slots());
    load.kv[kv_class][plan.device()].prompt_pairs = PromptPairs(num_tokens, keep.window);
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
