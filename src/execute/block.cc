#include "src/execute/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

namespace spillway {
namespace {

// Requests sorted at a time: enough blocks that like lengths meet, few enough that the output's
// order costs no memory.
constexpr int64_t kBlocksPerWindow = 4;

[[noreturn]] void RefuseUnplanned(const Request& request) {
  throw Error(ErrorCode::kResume,
              fmt::format("line {} is longer than any line was when the run was planned; the input "
                          "must not change during a run",
                          request.line));
}

}  // namespace

RowBatch::RowBatch(int64_t index, const BatchCapacity& capacity) : free_(capacity) {
  packed_.batch = index;
  rows_.reserve(static_cast<std::size_t>(capacity.rows));
  packed_.rows.reserve(static_cast<std::size_t>(capacity.rows));
  packed_.tokens.reserve(static_cast<std::size_t>(capacity.prompt_tokens));
  packed_.positions.reserve(static_cast<std::size_t>(capacity.prompt_tokens));
}

bool RowBatch::Admits(int64_t slots, int64_t prompt_tokens) const {
  return free_.rows >= 1 && free_.slots >= slots && free_.prompt_tokens >= prompt_tokens;
}

void RowBatch::Add(std::unique_ptr<Row> row, int64_t slots) {
  SPILLWAY_CHECK(Admits(slots, static_cast<int64_t>(row->request.prompt.size())));
  row->slot_begin = next_slot_;
  row->num_slots = slots;
  next_slot_ += slots;
  free_.rows -= 1;
  free_.slots -= slots;
  free_.prompt_tokens -= static_cast<int64_t>(row->request.prompt.size());
  rows_.push_back(std::move(row));
}

void RowBatch::Pack() {
  packed_.tokens.clear();
  packed_.positions.clear();
  packed_.rows.clear();
  for (const auto& row : rows_) {
    const auto offset = static_cast<int64_t>(packed_.tokens.size());
    if (row->num_past == 0) {
      packed_.tokens.insert(packed_.tokens.end(), row->request.prompt.begin(),
                            row->request.prompt.end());
    } else {
      packed_.tokens.push_back(row->sampler.tokens().back());
    }
    const int64_t num_new = static_cast<int64_t>(packed_.tokens.size()) - offset;
    for (int64_t token = 0; token < num_new; ++token) {
      packed_.positions.push_back(static_cast<int32_t>(row->num_past + token));
    }
    packed_.rows.push_back({row->slot_begin, row->num_slots, row->num_past, num_new, offset});
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

std::vector<RowBatch> BlockBuilder::Next(Job& job) {
  if (window_.empty()) FillWindow(job);
  std::vector<RowBatch> batches;
  while (!window_.empty()) {
    const int64_t slots = SlotsOf(window_.back());
    const auto prompt_tokens = static_cast<int64_t>(window_.back().prompt.size());
    if (batches.empty() || !batches.back().Admits(slots, prompt_tokens)) {
      if (static_cast<int64_t>(batches.size()) == plan_.num_batches) break;
      batches.emplace_back(static_cast<int64_t>(batches.size()), plan_.batch);
      // The plan holds the longest row that the scan of the input allowed for.
      if (!batches.back().Admits(slots, prompt_tokens)) RefuseUnplanned(window_.back());
    }
    batches.back().Add(std::make_unique<Row>(std::move(window_.back()), *options_.tokenizer,
                                             plan_.shape.eos, options_.run_seed),
                       slots);
    window_.pop_back();
  }
  return batches;
}

}  // namespace spillway
