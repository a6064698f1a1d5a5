// BatchLoad: what one batch brings into one pass: the tokens it feeds, and the KV that its rows
// hold in each tier. What the cost model counts bytes and operations of.
// Pure functions of values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "spillway/plan.h"

namespace spillway {

// Runs of a row's cache in each class of a plan: [KV class][run].
using KvRowRuns = std::vector<std::vector<KvRunPlace>>;

// Those of rows of `row_tokens` = prompt + max new tokens.
KvRowRuns RunsOf(const Plan& plan, int64_t row_tokens);

// Rows that are alike, as a pass finds them.
struct RowGroup {
  RequestShape shape;
  int64_t num_past = 0;  // tokens that they have been through; 0: the prompt comes now
  Tier kv_tier = Tier::kCpu;
  Tier hidden_tier = Tier::kCpu;
  int64_t count = 0;
  // Places in the log (KvLogPlan) up to the last of these rows; 0: not known, or they have none.
  int64_t log_end = 0;
  // Theirs, where they were found before; null: they are found anew. Budgets per KV head make them
  // many, and a simulation asks for them in each pass.
  const KvRowRuns* runs = nullptr;

  // Tokens that they feed, and those that are in their caches afterwards.
  int64_t NumNew() const { return num_past == 0 ? shape.fed_tokens() : 1; }
  int64_t NumStored() const { return num_past == 0 ? shape.prompt_tokens : 1; }
  // Passes to go. The last token is sampled and never fed; a text of one token, which has nothing
  // to score, is fed all the same.
  int64_t NumPasses() const {
    if (num_past == 0) return std::max<int64_t>(1, shape.max_new_tokens);
    return std::max<int64_t>(0, shape.slots() - num_past - 1);
  }
};

// Rows on disk that feed one token, as the log finds them in one decoder layer.
struct LoggedRows {
  RequestShape shape;
  int64_t num_past = 0;
  int64_t num_decoded = 0;  // of num_past: those behind the prompt
  int64_t kv_class = 0;
  int64_t count = 0;
  int64_t log_end = 0;  // one more than the last of their places in the log
};

// KV of a batch's rows in one tier and one decoder layer. Slots are those of a run (Plan::KvRuns).
struct KvLoad {
  int64_t loaded_slots = 0;        // in whole KV blocks: held before the pass
  int64_t stored_slots = 0;        // in whole KV blocks: that the pass changes
  int64_t prompt_slots = 0;        // of them those of rows whose prompt comes now
  int64_t new_slots = 0;           // of tokens whose K and V the pass makes and keeps
  int64_t attended_slots = 0;      // by rows that feed one token
  int64_t decoding_rows = 0;       // these
  int64_t prompt_pairs = 0;        // of a query and a key that it sees, in whole prompts
  std::vector<LoggedRows> logged;  // these rows, where the tier has a log
};

struct BatchLoad {
  int64_t rows = 0;
  int64_t tokens = 0;         // that are fed
  int64_t prompt_tokens = 0;  // of them
  PerTier<int64_t> hidden_tokens;
  std::vector<PerTier<KvLoad>> kv;  // [KV class of the plan], in each block of the class

  bool prefills() const { return prompt_tokens > 0; }
  // KV in one decoder layer. Requires: the plan that the load was made for.
  const PerTier<KvLoad>& KvOf(const Plan& plan, int64_t decoder_layer) const {
    return kv[static_cast<std::size_t>(plan.kv_class_of[static_cast<std::size_t>(decoder_layer)])];
  }
};

// Queries and the keys that they see, of a prompt in one head. window: as in KvKeep.
int64_t PromptPairs(int64_t prompt, int64_t window);

// Slots that such a row holds after so many tokens, in whole blocks of the tier.
int64_t HeldSlots(const Plan& plan, Tier tier, int64_t kv_class, int64_t row_tokens,
                  int64_t num_tokens);

// Requires: shapes as Plan::OwnShape gives them.
BatchLoad LoadOf(const Plan& plan, std::span<const RowGroup> rows);

// The prefix as it is computed; no tokens where the plan holds none.
BatchLoad PrefixLoad(const Plan& plan);

// A workload of so many requests; its sample is repeated where it is shorter than a batch of them
// can be. Requires: the sample is not empty.
Workload Repeated(const Workload& work, int64_t num_requests);

}  // namespace spillway
