// BatchPlaces: the places that the rows of one batch can have, and which are taken: slots of KV in
// each tier and class of decoder layers, places in the log of KV on disk, tokens' worth of
// hidden states. Lengths alone decide, so a run and its simulation give rows the same places.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/kv_place.h"
#include "spillway/plan.h"
#include "spillway/tier.h"
#include "spillway/workload.h"

namespace spillway {

// Places of one row.
struct RowPlaces {
  Tier kv_tier = Tier::kCpu;
  Tier hidden_tier = Tier::kCpu;
  std::vector<KvPlace> kv;  // [class]
  int64_t log_place = -1;   // of KvLogPlan's; -1: the row needs none

  bool operator==(const RowPlaces&) const = default;
};

class BatchPlaces {
 public:
  // Lifetime: the plan outlives this.
  explicit BatchPlaces(const Plan& plan);

  // Whether a row of this shape has room in the next pass: KV goes to the first tier with a run of
  // free slots in every class, hidden states to the first tier with room for them.
  bool Admits(const RequestShape& row) const;

  // Requires: Admits(row).
  RowPlaces Take(const RequestShape& row);

  // Takes note that all rows have been through a pass: from now on each feeds one token.
  void EndPass();

  // Makes a row's places free. `num_new`: tokens that it would have fed into the next pass.
  void Free(const RowPlaces& places, int64_t num_new);

  bool IsFull() const { return num_rows_ == plan_->batch.rows; }

 private:
  // Slots [begin, begin + size) of a tier's share that no row has.
  struct Gap {
    int64_t begin = 0;
    int64_t size = 0;
  };
  using Gaps = std::vector<Gap>;  // ascending, never touching

  // Slots of a row in each class, in whole KV blocks, and their number in a tier.
  struct RowSlots {
    int64_t row_tokens = -1;
    std::vector<int64_t> of_class;
  };
  const RowSlots& SlotsOf(int64_t row_tokens) const;
  int64_t SlotsIn(Tier tier, std::size_t kv_class, int64_t row_tokens) const;
  std::optional<Tier> KvTier(int64_t row_tokens) const;
  std::optional<Tier> HiddenTier(int64_t fed_tokens) const;
  bool HasLogPlace(Tier tier, int64_t row_tokens) const;
  KvPlace TakeSlots(Tier tier, std::size_t kv_class, int64_t row_tokens);
  int64_t TakeLogPlace(Tier tier);
  static void FreeSlots(Gaps& gaps, const KvPlace& place);

  const Plan* plan_;
  PerTier<std::vector<Gaps>> gaps_;      // [class]
  mutable RowSlots last_slots_;          // of the row that was asked for last
  std::vector<bool> log_places_;         // of KvLogPlan: whether a row has it
  PerTier<int64_t> hidden_tokens_ = {};  // that rows feed into the next pass
  PerTier<int64_t> hidden_rows_ = {};
  int64_t num_rows_ = 0;
};

}  // namespace spillway
