#include "src/walk/composer.h"

#include <algorithm>
#include <functional>

#include "spillway/round.h"

namespace spillway {

void Composer::FillWindow(RequestSource& source) {
  const auto size = static_cast<std::size_t>(kBlocksPerWindow * plan_.BlockRows());
  while (window_.size() < size) {
    const std::optional<WaitingRequest> request = source.Next();
    if (!request) break;
    window_.push_back(*request);
  }
  // Lengths are rounded as CPU memory rounds them: the order is the same for every placement.
  std::ranges::stable_sort(window_, std::greater<>(), [this](const WaitingRequest& request) {
    return DivideUp(request.shape.slots(), plan_.slot_align[Tier::kCpu]);
  });
  std::ranges::reverse(window_);
}

std::vector<ComposedBatch> Composer::NextBlock(RequestSource& source) {
  // A block has as many batches as it begins with: it must not begin with the rest of a window.
  if (static_cast<int64_t>(window_.size()) < plan_.BlockRows()) FillWindow(source);
  std::vector<ComposedBatch> batches;
  while (!window_.empty()) {
    const WaitingRequest next = window_.back();
    if (batches.empty() || !batches.back().places.Admits(next.shape)) {
      if (static_cast<int64_t>(batches.size()) == plan_.num_batches) break;
      batches.push_back({BatchPlaces(plan_), {}});
      // The plan holds the longest row that the scan of the input allowed for.
      if (!batches.back().places.Admits(next.shape)) source.Refuse(next);
    }
    ComposedBatch& batch = batches.back();
    batch.rows.push_back({next, batch.places.Take(next.shape)});
    window_.pop_back();
  }
  return batches;
}

std::vector<ComposedRow> Composer::Refill(BatchPlaces& batch, RequestSource& source) {
  std::vector<ComposedRow> rows;
  if (batch.IsFull()) return rows;
  if (window_.empty()) FillWindow(source);
  std::optional<RequestShape> refused;  // the last one: its neighbours are often like it
  for (auto left = window_.size(); left > 0 && !batch.IsFull(); --left) {
    const WaitingRequest next = window_[left - 1];
    if (next.shape == refused) continue;
    if (!batch.Admits(next.shape)) {
      refused = next.shape;
      continue;
    }
    rows.push_back({next, batch.Take(next.shape)});
    window_.erase(window_.begin() + static_cast<std::ptrdiff_t>(left - 1));
  }
  return rows;
}

}  // namespace spillway
