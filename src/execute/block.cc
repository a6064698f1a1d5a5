#include "src/execute/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

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
  for (const Tier tier : kAllTiers) {
    if (plan.kv[tier].size > 0) gaps_[tier].push_back({0, plan.kv[tier].size});
  }
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  packed_.batch = index;
  rows_.reserve(max_rows);
  packed_.rows.reserve(max_rows);
  packed_.tokens.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
  packed_.positions.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
}

std::optional<Tier> RowBatch::KvTier(int64_t slots) const {
  const auto found = std::ranges::find_if(kAllTiers, [&](Tier tier) {
    return std::ranges::any_of(gaps_[tier], [&](const Gap& gap) { return gap.size >= slots; });
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

bool RowBatch::Admits(int64_t slots, int64_t prompt_tokens) const {
  return !IsFull() && KvTier(slots) && HiddenTier(prompt_tokens);
}

void RowBatch::Add(std::unique_ptr<Row> row, int64_t slots) {
  const std::optional<Tier> kv = KvTier(slots);
  const std::optional<Tier> hidden = HiddenTier(row->NumNew());
  SPILLWAY_CHECK(!IsFull() && kv && hidden);
  std::vector<Gap>& gaps = gaps_[*kv];
  // The smallest that is large enough, the first of equals.
  auto best = gaps.end();
  for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
    if (gap->size >= slots && (best == gaps.end() || gap->size < best->size)) best = gap;
  }
  row->kv_tier = *kv;
  row->slot_begin = best->begin;
  row->num_slots = slots;
  row->hidden_tier = *hidden;
  best->begin += slots;
  best->size -= slots;
  if (best->size == 0) gaps.erase(best);
  const auto after = std::ranges::upper_bound(
      rows_, *hidden, {}, [](const std::unique_ptr<Row>& other) { return other->hidden_tier; });
  rows_.insert(after, std::move(row));
}

void RowBatch::Free(const Row& row) {
  std::vector<Gap>& gaps = gaps_[row.kv_tier];
  auto next = std::ranges::upper_bound(gaps, row.slot_begin, {}, &Gap::begin);
  next = gaps.insert(next, {row.slot_begin, row.num_slots});
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
  packed_.hidden = {};
  for (const auto& row : rows_) {
    const auto offset = static_cast<int64_t>(packed_.tokens.size());
    const int64_t num_new = row->NumNew();
    if (row->num_past == 0) {
      packed_.tokens.insert(packed_.tokens.end(), row->request.prompt.begin(),
                            row->request.prompt.end());
    } else {
      packed_.tokens.push_back(row->sampler.tokens().back());
    }
    for (int64_t token = 0; token < num_new; ++token) {
      packed_.positions.push_back(static_cast<int32_t>(row->num_past + token));
    }
    packed_.rows.push_back(
        {row->kv_tier, row->slot_begin, row->num_slots, row->num_past, num_new, offset});
    TokenRange& range = packed_.hidden[row->hidden_tier];
    if (range.size() == 0) range.begin = offset;
    range.end = offset + num_new;
  }
}

void RowBatch::Advance() {
  for (std::size_t row = 0; row < rows_.size(); ++row)
    rows_[row]->num_past += packed_.rows[row].num_new;
}

BlockBuilder::BlockBuilder(const Plan& plan, Options options) : plan_(plan), options_(options) {}

int64_t BlockBuilder::SlotsOf(const Request& request) const {
  const int64_t slots = static_cast<int64_t>(request.prompt.size()) + request.sampling.max_tokens;
  return (slots + plan_.slot_align - 1) / plan_.slot_align * plan_.slot_align;
}

void BlockBuilder::FillWindow(Job& job) {
  const int64_t block_rows = plan_.batch.rows * plan_.num_batches;
  const auto size = static_cast<std::size_t>(kBlocksPerWindow * block_rows);
  while (window_.size() < size) {
    std::optional<Request> request = job.Next();
    if (!request) break;
    window_.push_back(std::move(*request));
  }
  std::ranges::stable_sort(window_, std::greater<>(),
                           [this](const Request& r) { return SlotsOf(r); });
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
    const int64_t slots = SlotsOf(window_.back());
    const auto prompt_tokens = static_cast<int64_t>(window_.back().prompt.size());
    if (batches.empty() || !batches.back().Admits(slots, prompt_tokens)) {
      if (static_cast<int64_t>(batches.size()) == plan_.num_batches) break;
      batches.emplace_back(static_cast<int64_t>(batches.size()), plan_);
      // The plan holds the longest row that the scan of the input allowed for.
      if (!batches.back().Admits(slots, prompt_tokens)) RefuseUnplanned(window_.back());
    }
    batches.back().Add(TakeRow(window_.size() - 1), slots);
  }
  return batches;
}

void BlockBuilder::Refill(RowBatch& batch, Job& job) {
  if (batch.IsFull()) return;
  if (window_.empty()) FillWindow(job);
  for (std::size_t left = window_.size(); left > 0 && !batch.IsFull(); --left) {
    const Request& request = window_[left - 1];
    const int64_t slots = SlotsOf(request);
    if (batch.Admits(slots, static_cast<int64_t>(request.prompt.size()))) {
      batch.Add(TakeRow(left - 1), slots);
    }
  }
}

}  // namespace spillway
