#include "src/simulate/sim_batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "spillway/error.h"

namespace spillway {

SimBatch::SimBatch(const Plan& plan, ComposedBatch batch)
    : plan_(&plan), places_(std::move(batch.places)) {
  for (ComposedRow& row : batch.rows) Add(std::move(row));
}

void SimBatch::Add(ComposedRow row) {
  const RowGroup coming = {row.request.shape,      0, row.places.kv_tier,
                           row.places.hidden_tier, 1, row.places.log_place + 1};
  const auto alike = std::ranges::find_if(groups_, [&](const RowGroup& group) {
    return group.num_past == 0 && group.shape == coming.shape && group.kv_tier == coming.kv_tier &&
           group.hidden_tier == coming.hidden_tier;
  });
  if (alike == groups_.end()) {
    runs_.push_back(std::make_unique<KvRowRuns>(RunsOf(*plan_, coming.shape.slots())));
    groups_.push_back(coming);
    groups_.back().runs = runs_.back().get();
    rows_.emplace_back().push_back(std::move(row));
  } else {
    ++alike->count;
    alike->log_end = std::max(alike->log_end, coming.log_end);
    rows_[static_cast<std::size_t>(alike - groups_.begin())].push_back(std::move(row));
  }
}

void SimBatch::Advance(int64_t passes) {
  SPILLWAY_CHECK(passes <= PassesToEnd());
  if (passes == 0) return;
  for (RowGroup& group : groups_) group.num_past += group.NumStored() + passes - 1;
  places_.EndPass();
  for (std::size_t group = groups_.size(); group-- > 0;) {
    if (groups_[group].NumPasses() > 0) continue;
    for (const ComposedRow& row : rows_[group]) places_.Free(row.places, 1);
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(group));
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(group));
    runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(group));
  }
}

int64_t SimBatch::PassesToEnd() const {
  int64_t passes = std::numeric_limits<int64_t>::max();
  for (const RowGroup& group : groups_) passes = std::min(passes, group.NumPasses());
  return passes;
}

std::optional<WaitingRequest> SampledRequests::Next() {
  if (num_read_ == count_) return std::nullopt;
  const int64_t number = num_read_++;
  return WaitingRequest{number,
                        work_.sample[static_cast<std::size_t>(number) % work_.sample.size()]};
}

// A plan is made for its workload's longest request.
void SampledRequests::Refuse(const WaitingRequest&) { SPILLWAY_CHECK(false); }

}  // namespace spillway
