#include "src/walk/batch_places.h"

#include <algorithm>
#include <iterator>

#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway {

BatchPlaces::BatchPlaces(const Plan& plan) : plan_(&plan) {
  for (const Tier tier : kAllTiers) {
    for (const KvClass& kv_class : plan.kv_classes) {
      gaps_[tier].emplace_back();
      if (kv_class.slots[tier] > 0) gaps_[tier].back().push_back({0, kv_class.slots[tier]});
    }
  }
  log_places_.resize(static_cast<std::size_t>(plan.kv_log.rows));
}

bool BatchPlaces::Admits(const RequestShape& row) const {
  return !IsFull() && KvTier(row.slots()) && HiddenTier(row.fed_tokens());
}

// A row is admitted, gets a tier and then its places: each asks for its slots, which takes long
// where every KV head has a budget of its own.
const BatchPlaces::RowSlots& BatchPlaces::SlotsOf(int64_t row_tokens) const {
  if (last_slots_.row_tokens == row_tokens) return last_slots_;
  last_slots_.of_class.resize(plan_->kv_classes.size());  // where memory ends, nothing has changed
  for (std::size_t kv_class = 0; kv_class < plan_->kv_classes.size(); ++kv_class) {
    last_slots_.of_class[kv_class] =
        plan_->RowSlots(Tier::kCpu, static_cast<int64_t>(kv_class), row_tokens);
  }
  last_slots_.row_tokens = row_tokens;
  return last_slots_;
}

int64_t BatchPlaces::SlotsIn(Tier tier, std::size_t kv_class, int64_t row_tokens) const {
  return RoundUp(SlotsOf(row_tokens).of_class[kv_class], plan_->slot_align[tier]);
}

std::optional<Tier> BatchPlaces::KvTier(int64_t row_tokens) const {
  const auto found = std::ranges::find_if(kAllTiers, [&](Tier tier) {
    if (!HasLogPlace(tier, row_tokens)) return false;
    for (std::size_t kv_class = 0; kv_class < plan_->kv_classes.size(); ++kv_class) {
      const int64_t slots = SlotsIn(tier, kv_class, row_tokens);
      const auto holds = [&](const Gap& gap) { return gap.size >= slots; };
      if (std::ranges::none_of(gaps_[tier][kv_class], holds)) return false;
    }
    return true;
  });
  return found == kAllTiers.end() ? std::nullopt : std::optional<Tier>(*found);
}

std::optional<Tier> BatchPlaces::HiddenTier(int64_t fed_tokens) const {
  for (const Tier tier : kAllTiers) {
    if (hidden_tokens_[tier] + fed_tokens <= plan_->hidden[tier].size) return tier;
  }
  return std::nullopt;
}

// There are as many as rows were dealt to the disk, and each has room for the longest one's state.
bool BatchPlaces::HasLogPlace(Tier tier, int64_t row_tokens) const {
  if (!plan_->Logs(tier)) return true;
  return row_tokens <= plan_->longest.slots() &&
         std::ranges::find(log_places_, false) != log_places_.end();
}

RowPlaces BatchPlaces::Take(const RequestShape& row) {
  const std::optional<Tier> kv = KvTier(row.slots());
  const std::optional<Tier> hidden = HiddenTier(row.fed_tokens());
  SPILLWAY_CHECK(!IsFull() && kv && hidden);
  RowPlaces places = {*kv, *hidden, {}, TakeLogPlace(*kv)};
  places.kv.reserve(plan_->kv_classes.size());
  for (std::size_t kv_class = 0; kv_class < plan_->kv_classes.size(); ++kv_class) {
    places.kv.push_back(TakeSlots(*kv, kv_class, row.slots()));
  }
  hidden_tokens_[*hidden] += row.fed_tokens();
  ++hidden_rows_[*hidden];
  ++num_rows_;
  return places;
}

KvPlace BatchPlaces::TakeSlots(Tier tier, std::size_t kv_class, int64_t row_tokens) {
  const int64_t slots = SlotsIn(tier, kv_class, row_tokens);
  Gaps& gaps = gaps_[tier][kv_class];
  // The smallest that is large enough, the first of equals.
  auto best = gaps.end();
  for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
    if (gap->size >= slots && (best == gaps.end() || gap->size < best->size)) best = gap;
  }
  const KvPlace place = {best->begin, slots, row_tokens};
  best->begin += slots;
  best->size -= slots;
  if (best->size == 0) gaps.erase(best);
  return place;
}

int64_t BatchPlaces::TakeLogPlace(Tier tier) {
  if (!plan_->Logs(tier)) return -1;
  const auto free = std::ranges::find(log_places_, false);
  *free = true;
  return free - log_places_.begin();
}

void BatchPlaces::EndPass() { hidden_tokens_ = hidden_rows_; }

void BatchPlaces::Free(const RowPlaces& places, int64_t num_new) {
  if (places.log_place >= 0) log_places_[static_cast<std::size_t>(places.log_place)] = false;
  for (std::size_t kv_class = 0; kv_class < places.kv.size(); ++kv_class) {
    FreeSlots(gaps_[places.kv_tier][kv_class], places.kv[kv_class]);
  }
  hidden_tokens_[places.hidden_tier] -= num_new;
  --hidden_rows_[places.hidden_tier];
  --num_rows_;
}

void BatchPlaces::FreeSlots(Gaps& gaps, const KvPlace& place) {
  auto next = std::ranges::upper_bound(gaps, place.slot_begin, {}, &Gap::begin);
  next = gaps.insert(next, {place.slot_begin, place.num_slots});
  const auto join = [&](Gaps::iterator left) {
    if (std::next(left) == gaps.end() || left->begin + left->size != std::next(left)->begin) return;
    left->size += std::next(left)->size;
    gaps.erase(std::next(left));
  };
  join(next);
  if (next != gaps.begin()) join(std::prev(next));
}

}  // namespace spillway
