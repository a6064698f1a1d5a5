#include "src/simulate/sim_rows.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

#include "spillway/error.h"
#include "src/run/block.h"

namespace spillway {

const Tier* SimBatch::KvTier(const RequestShape& row) const {
  for (const Tier& tier : kAllTiers) {
    int64_t taken = RowSlots(*plan_, tier, row);
    int64_t rows = 1;
    for (const RowGroup& group : groups_) {
      if (group.kv_tier != tier) continue;
      taken += group.count * RowSlots(*plan_, tier, group.shape);
      rows += group.count;
    }
    if (plan_->Logs(tier) && rows > plan_->kv_log.rows) continue;
    if (taken <= plan_->kv[tier].size) return &tier;
  }
  return nullptr;
}

const Tier* SimBatch::HiddenTier(const RequestShape& row) const {
  for (const Tier& tier : kAllTiers) {
    int64_t tokens = row.prompt_tokens;
    for (const RowGroup& group : groups_) {
      if (group.hidden_tier == tier) tokens += group.count * group.NumNew();
    }
    if (tokens <= plan_->hidden[tier].size) return &tier;
  }
  return nullptr;
}

bool SimBatch::Admits(const RequestShape& row) const {
  return !IsFull() && KvTier(row) != nullptr && HiddenTier(row) != nullptr;
}

void SimBatch::Add(const RequestShape& row) {
  const Tier* kv = KvTier(row);
  const Tier* hidden = HiddenTier(row);
  SPILLWAY_CHECK(kv != nullptr && hidden != nullptr);
  const auto alike = std::ranges::find_if(groups_, [&](const RowGroup& group) {
    return group.num_past == 0 && group.shape == row && group.kv_tier == *kv &&
           group.hidden_tier == *hidden;
  });
  if (alike != groups_.end()) {
    ++alike->count;
  } else {
    groups_.push_back({row, 0, *kv, *hidden, 1});
  }
}

void SimBatch::Advance(int64_t passes) {
  SPILLWAY_CHECK(passes <= PassesToEnd());
  if (passes == 0) return;
  for (RowGroup& group : groups_) group.num_past += group.NumNew() + passes - 1;
  std::erase_if(groups_, [](const RowGroup& group) { return group.NumPasses() == 0; });
}

int64_t SimBatch::NumRows() const {
  int64_t rows = 0;
  for (const RowGroup& group : groups_) rows += group.count;
  return rows;
}

int64_t SimBatch::PassesToEnd() const {
  int64_t passes = std::numeric_limits<int64_t>::max();
  for (const RowGroup& group : groups_) passes = std::min(passes, group.NumPasses());
  return passes;
}

void SimRequests::FillWindow() {
  const auto size =
      static_cast<std::size_t>(kBlocksPerWindow * plan_.batch.rows * plan_.num_batches);
  while (window_.size() < size && left_ > 0) {
    window_.push_back(work_.sample[static_cast<std::size_t>(taken_++) % work_.sample.size()]);
    --left_;
  }
  std::ranges::stable_sort(window_, std::less<>(), [this](const RequestShape& row) {
    return RowSlots(plan_, Tier::kCpu, row);
  });
}

std::vector<SimBatch> SimRequests::NextBlock() {
  const int64_t block_rows = plan_.batch.rows * plan_.num_batches;
  if (static_cast<int64_t>(window_.size()) < block_rows) FillWindow();
  std::vector<SimBatch> batches;
  while (!window_.empty()) {
    if (batches.empty() || !batches.back().Admits(window_.back())) {
      if (static_cast<int64_t>(batches.size()) == plan_.num_batches) break;
      batches.emplace_back(plan_);
    }
    batches.back().Add(window_.back());
    window_.pop_back();
  }
  return batches;
}

void SimRequests::Refill(SimBatch& batch) {
  if (batch.IsFull()) return;
  if (window_.empty()) FillWindow();
  for (std::size_t left = window_.size(); left > 0 && !batch.IsFull(); --left) {
    const RequestShape row = window_[left - 1];
    if (!batch.Admits(row)) continue;
    batch.Add(row);
    window_.erase(window_.begin() + static_cast<std::ptrdiff_t>(left - 1));
  }
}

}  // namespace spillway
