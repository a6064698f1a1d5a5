#include "src/run/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway {
namespace {

[[noreturn]] void RefuseUnplanned(const Request& request) {
  throw Error(ErrorCode::kResume,
              fmt::format("line {} is longer than any line was when the run was planned; the input "
                          "must not change during a run",
                          request.line));
}

}  // namespace

RowBatch::RowBatch(int64_t index, const Plan& plan) : plan_(&plan) {
  SPILLWAY_CHECK(plan.batch.logits >= plan.batch.rows);
  for (const Tier tier : kAllTiers) {
    for (const KvClass& kv_class : plan.kv_classes) {
      gaps_[tier].emplace_back();
      if (kv_class.slots[tier] > 0) gaps_[tier].back().push_back({0, kv_class.slots[tier]});
    }
  }
  log_places_.resize(static_cast<std::size_t>(plan.kv_log.rows));
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  packed_.batch = index;
  rows_.reserve(max_rows);
  packed_.rows.reserve(max_rows);
  packed_.num_kv_classes = static_cast<int64_t>(plan.kv_classes.size());
  packed_.kv_places.reserve(max_rows * plan.kv_classes.size());
  packed_.tokens.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
  packed_.positions.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
}

// The first tier with room in every class.
std::optional<Tier> RowBatch::KvTier(int64_t row_tokens) const {
  const auto found = std::ranges::find_if(kAllTiers, [&](Tier tier) {
    if (!HasLogPlace(tier, row_tokens)) return false;
    for (std::size_t kv_class = 0; kv_class < plan_->kv_classes.size(); ++kv_class) {
      const int64_t slots = plan_->RowSlots(tier, static_cast<int64_t>(kv_class), row_tokens);
      const auto holds = [&](const Gap& gap) { return gap.size >= slots; };
      if (std::ranges::none_of(gaps_[tier][kv_class], holds)) return false;
    }
    return true;
  });
  return found == kAllTiers.end() ? std::nullopt : std::optional<Tier>(*found);
}

std::optional<Tier> RowBatch::HiddenTier(int64_t prompt_tokens) const {
  for (const Tier tier : kAllTiers) {
    int64_t tokens = prompt_tokens;
    for (const auto& row : rows_) {
      if (row->hidden_tier == tier) tokens += row->NumNew();
    }
    if (tokens <= plan_->hidden[tier].size) return tier;
  }
  return std::nullopt;
}

// There are as many as rows were dealt to the disk, and each has room for the longest one's state.
bool RowBatch::HasLogPlace(Tier tier, int64_t row_tokens) const {
  if (!plan_->Logs(tier)) return true;
  return row_tokens <= plan_->longest.slots() &&
         std::ranges::find(log_places_, false) != log_places_.end();
}

int64_t RowBatch::TakeLogPlace(Tier tier) {
  if (!plan_->Logs(tier)) return -1;
  const auto free = std::ranges::find(log_places_, false);
  *free = true;
  return free - log_places_.begin();
}

bool RowBatch::Admits(const RequestShape& request) const {
  return !IsFull() && KvTier(request.slots()) && HiddenTier(request.prompt_tokens);
}

KvPlace RowBatch::Take(Tier tier, std::size_t kv_class, int64_t row_tokens) {
  const auto index = static_cast<int64_t>(kv_class);
  const int64_t slots = plan_->RowSlots(tier, index, row_tokens);
  std::vector<Gap>& gaps = gaps_[tier][kv_class];
  // The smallest that is large enough, the first of equals.
  auto best = gaps.end();
  for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
    if (gap->size >= slots && (best == gaps.end() || gap->size < best->size)) best = gap;
  }
  const KvPlace place = {best->begin, slots, plan_->RowKeep(index, row_tokens)};
  best->begin += slots;
  best->size -= slots;
  if (best->size == 0) gaps.erase(best);
  return place;
}

void RowBatch::Add(std::unique_ptr<Row> row) {
  const int64_t row_tokens = row->shape().slots();
  const std::optional<Tier> kv = KvTier(row_tokens);
  const std::optional<Tier> hidden = HiddenTier(row->NumNew());
  SPILLWAY_CHECK(!IsFull() && kv && hidden);
  row->kv_tier = *kv;
  row->hidden_tier = *hidden;
  for (std::size_t kv_class = 0; kv_class < plan_->kv_classes.size(); ++kv_class) {
    row->kv_places.push_back(Take(*kv, kv_class, row_tokens));
  }
  row->log_place = TakeLogPlace(*kv);
  const auto after = std::ranges::upper_bound(
      rows_, *hidden, {}, [](const std::unique_ptr<Row>& other) { return other->hidden_tier; });
  rows_.insert(after, std::move(row));
}

void RowBatch::Free(const Row& row) {
  if (row.log_place >= 0) log_places_[static_cast<std::size_t>(row.log_place)] = false;
  for (std::size_t kv_class = 0; kv_class < row.kv_places.size(); ++kv_class) {
    Free(gaps_[row.kv_tier][kv_class], row.kv_places[kv_class]);
  }
}

void RowBatch::Free(std::vector<Gap>& gaps, const KvPlace& place) {
  auto next = std::ranges::upper_bound(gaps, place.slot_begin, {}, &Gap::begin);
  next = gaps.insert(next, {place.slot_begin, place.num_slots});
  const auto join = [&](std::vector<Gap>::iterator left) {
    if (std::next(left) == gaps.end() || left->begin + left->size != std::next(left)->begin) return;
    left->size += std::next(left)->size;
    gaps.erase(std::next(left));
  };
  join(next);
  if (next != gaps.begin()) join(std::prev(next));
}

void RowBatch::Pack() {
  packed_.tokens.clear();
  packed_.positions.clear();
  packed_.rows.clear();
  packed_.kv_places.clear();
  packed_.hidden = {};
  for (const auto& row : rows_) {
    const auto offset = static_cast<int64_t>(packed_.tokens.size());
    const int64_t num_new = row->NumNew();
    const int64_t num_logits = packed_.NumLogits();
    if (row->num_past == 0) {
      packed_.tokens.insert(packed_.tokens.end(), row->request.prompt.begin(),
                            row->request.prompt.end());
    } else {
      packed_.tokens.push_back(row->next->newest());
    }
    for (int64_t token = 0; token < num_new; ++token) {
      packed_.positions.push_back(static_cast<int32_t>(row->num_past + token));
    }
    packed_.rows.push_back({row->kv_tier, row->num_past, num_new, offset, row->NumNewLogits(),
                            num_logits, row->NumDecoded(), row->log_place});
    packed_.kv_places.insert(packed_.kv_places.end(), row->kv_places.begin(), row->kv_places.end());
    TokenRange& range = packed_.hidden[row->hidden_tier];
    if (range.size() == 0) range.begin = offset;
    range.end = offset + num_new;
  }
  packed_.head = {};
  NextLogits();
}

bool RowBatch::NextLogits() {
  const int64_t begin = packed_.head.end;
  packed_.head = {begin, std::min(packed_.NumLogits(), begin + plan_->batch.logits)};
  return packed_.head.size() > 0;
}

void RowBatch::Advance() {
  for (std::size_t row = 0; row < rows_.size(); ++row)
    rows_[row]->num_past += packed_.rows[row].num_new;
}

BlockBuilder::BlockBuilder(const Plan& plan, Options options) : plan_(plan), options_(options) {}

void BlockBuilder::FillWindow(Job& job) {
  const int64_t block_rows = plan_.batch.rows * plan_.num_batches;
  const auto size = static_cast<std::size_t>(kBlocksPerWindow * block_rows);
  while (window_.size() < size) {
    std::optional<Request> request = job.Next();
    if (!request) break;
    window_.push_back(std::move(*request));
  }
  // As memory rounds them, wherever they go: the order is the same for every placement.
  std::ranges::stable_sort(window_, std::greater<>(), [this](const Request& request) {
    return DivideUp(ShapeOf(request).slots(), plan_.slot_align[Tier::kCpu]);
  });
  std::ranges::reverse(window_);
}

std::unique_ptr<Row> BlockBuilder::TakeRow(std::size_t index) {
  const auto at = window_.begin() + static_cast<std::ptrdiff_t>(index);
  auto row = std::make_unique<Row>(std::move(*at), *options_.tokenizer, plan_.shape.eos,
                                   options_.run_seed);
  window_.erase(at);
  return row;
}

std::vector<RowBatch> BlockBuilder::Next(Job& job) {
  // A block has as many batches as it begins with: it must not begin with the rest of a window.
  const int64_t block_rows = plan_.batch.rows * plan_.num_batches;
  if (static_cast<int64_t>(window_.size()) < block_rows) FillWindow(job);
  std::vector<RowBatch> batches;
  while (!window_.empty()) {
    const RequestShape shape = ShapeOf(window_.back());
    if (batches.empty() || !batches.back().Admits(shape)) {
      if (static_cast<int64_t>(batches.size()) == plan_.num_batches) break;
      batches.emplace_back(static_cast<int64_t>(batches.size()), plan_);
      // The plan holds the longest row that the scan of the input allowed for.
      if (!batches.back().Admits(shape)) RefuseUnplanned(window_.back());
    }
    batches.back().Add(TakeRow(window_.size() - 1));
  }
  return batches;
}

void BlockBuilder::Refill(RowBatch& batch, Job& job) {
  if (batch.IsFull()) return;
  if (window_.empty()) FillWindow(job);
  for (std::size_t left = window_.size(); left > 0 && !batch.IsFull(); --left) {
    if (batch.Admits(ShapeOf(window_[left - 1]))) batch.Add(TakeRow(left - 1));
  }
}

}  // namespace spillway
