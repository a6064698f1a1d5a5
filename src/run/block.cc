#include "src/run/block.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

namespace spillway {

RowBatch::RowBatch(int64_t index, const Plan& plan, BatchPlaces places, Beginnings beginnings)
    : plan_(&plan), places_(std::move(places)), beginnings_(beginnings) {
  SPILLWAY_CHECK(beginnings == Beginnings::kApart || plan.SharesBeginnings());
  SPILLWAY_CHECK(plan.batch.logits >= plan.batch.rows);
  const auto max_rows = static_cast<std::size_t>(plan.batch.rows);
  packed_.batch = index;
  rows_.reserve(max_rows);
  shared_.reserve(max_rows);
  packed_.rows.reserve(max_rows);
  packed_.num_kv_classes = static_cast<int64_t>(plan.kv_classes.size());
  packed_.kv_places.reserve(max_rows * plan.kv_classes.size());
  packed_.tokens.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
  packed_.positions.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
  if (plan.kept.rolls) packed_.places.reserve(static_cast<std::size_t>(plan.batch.prompt_tokens));
}

void RowBatch::Add(std::unique_ptr<Row> row) {
  const auto after = std::ranges::upper_bound(
      rows_, row->places.hidden_tier, {},
      [](const std::unique_ptr<Row>& other) { return other->places.hidden_tier; });
  rows_.insert(after, std::move(row));
}

// Looks for prompts of this pass that begin as another row does: one that is running, or a prompt
// before it that shares nothing itself.
void RowBatch::FindBeginnings() {
  shared_.assign(rows_.size(), {});
  const auto is_new = [](const std::unique_ptr<Row>& row) { return row->num_past == 0; };
  if (beginnings_ == Beginnings::kApart || std::ranges::none_of(rows_, is_new)) return;
  prompts_.Clear();
  for (std::size_t at = 0; at < rows_.size(); ++at) {
    if (!is_new(rows_[at])) prompts_.Add({static_cast<int64_t>(at), rows_[at]->OwnPrompt()});
  }
  for (std::size_t at = 0; at < rows_.size(); ++at) {
    const Row& row = *rows_[at];
    if (!is_new(rows_[at])) continue;
    shared_[at] = prompts_.Find(row.OwnPrompt(), row.NumNew() - row.NumNewLogits());
    if (shared_[at].row < 0) prompts_.Add({static_cast<int64_t>(at), row.OwnPrompt()});
  }
  prompts_.Clear();
}

void RowBatch::PackRow(const Row& row, const SharedBeginnings::Beginning& shared) {
  const auto offset = static_cast<int64_t>(packed_.tokens.size());
  const int64_t num_new = row.NumNew() - shared.num_tokens;
  // Of the prefix a prompt has in its row's cache what the cache does not leave out.
  const int64_t of_prefix = row.num_past == 0 ? row.num_prefix - row.num_apart : 0;
  const int64_t num_shared = of_prefix + shared.num_tokens;
  const int64_t num_logits = packed_.NumLogits();
  if (row.num_past == 0) {
    const std::span<const TokenId> prompt = row.OwnPrompt();
    packed_.tokens.insert(packed_.tokens.end(), prompt.begin() + shared.num_tokens, prompt.end());
  } else {
    packed_.tokens.push_back(row.next->newest());
  }
  for (int64_t token = 0; token < num_new; ++token) {
    const int64_t position = row.num_apart + row.num_past + num_shared + token;
    packed_.positions.push_back(static_cast<int32_t>(position));
    if (!plan_->kept.rolls) continue;
    packed_.places.push_back(static_cast<int32_t>(row.num_past == 0 ? position : row.newest_place));
  }
  const RowPlaces& places = row.places;
  packed_.rows.push_back({places.kv_tier, row.num_past, num_new, offset, row.NumNewLogits(),
                          num_logits, row.NumDecoded(), places.log_place,
                          ShapeOf(row.request).slots(), num_shared, shared.row, row.newest_place,
                          row.request.kv_less});
  packed_.kv_places.insert(packed_.kv_places.end(), places.kv.begin(), places.kv.end());
  TokenRange& range = packed_.hidden[places.hidden_tier];
  if (range.size() == 0) range.begin = offset;
  range.end = offset + num_new;
}

void RowBatch::Pack() {
  packed_.tokens.clear();
  packed_.positions.clear();
  packed_.places.clear();
  packed_.rows.clear();
  packed_.kv_places.clear();
  packed_.hidden = {};
  FindBeginnings();
  for (std::size_t at = 0; at < rows_.size(); ++at) PackRow(*rows_[at], shared_[at]);
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
    rows_[row]->num_past += packed_.rows[row].num_stored();
  places_.EndPass();
}

namespace {

[[noreturn]] void ThrowChanged(const Request& request, std::string_view what) {
  throw Error(ErrorCode::kResume,
              fmt::format("line {} {} when the run was planned; the input must not change during "
                          "a run",
                          request.line, what));
}

}  // namespace

class BlockBuilder::JobRequests final : public RequestSource {
 public:
  JobRequests(BlockBuilder& blocks, Job& job) : blocks_(blocks), job_(job) {}

  std::optional<WaitingRequest> Next() override {
    std::optional<Request> request = job_.Next();
    if (!request) return std::nullopt;
    blocks_.RefuseOtherPrefix(*request);
    const WaitingRequest waiting = {blocks_.num_read_++, blocks_.plan_.OwnShape(ShapeOf(*request))};
    blocks_.waiting_.emplace(waiting.number, std::move(*request));
    return waiting;
  }

  void Refuse(const WaitingRequest& request) override {
    ThrowChanged(blocks_.waiting_.at(request.number), "is longer than any line was");
  }

 private:
  BlockBuilder& blocks_;
  Job& job_;
};

void BlockBuilder::RefuseOtherPrefix(const Request& request) const {
  const std::vector<TokenId>& prefix = plan_.prefix.tokens;
  const std::span<const TokenId> before = request.BeforeLogits();
  if (before.size() >= prefix.size() && std::ranges::equal(before.first(prefix.size()), prefix))
    return;
  ThrowChanged(request, "does not begin as all lines did");
}

// Less is what the row's slots hold.
void BlockBuilder::CheckLess(const Request& request) const {
  const KvLess& less = request.kv_less;
  if (less.decoder_layer < 0) return;
  const int64_t row_tokens = ShapeOf(request).slots();
  SPILLWAY_CHECK(plan_.kept.evicts() && less.kv_head < plan_.KvRuns());
  for (int64_t run = 0; run < plan_.KvRuns(); ++run) {
    const KvHeadAt at = {less.decoder_layer, run};
    SPILLWAY_CHECK(KeepOf(plan_.kept, at, row_tokens, less).slots() <=
                   KeepOf(plan_.kept, at, row_tokens).slots());
  }
}

void BlockBuilder::AddRow(ComposedRow composed, RowBatch& batch) {
  auto waiting = waiting_.extract(composed.request.number);
  CheckLess(waiting.mapped());
  auto row = std::make_unique<Row>(std::move(waiting.mapped()), *options_.tokenizer,
                                   plan_.shape.eos, options_.run_seed);
  row->num_prefix = plan_.prefix.num_tokens();
  row->num_apart = plan_.CachePrefix();
  if (plan_.kept.rolls)
    row->newest_place = plan_.MostRunKeep(ShapeOf(row->request).slots()).slots();
  row->places = std::move(composed.places);
  batch.Add(std::move(row));
}

std::vector<RowBatch> BlockBuilder::Next(Job& job) {
  JobRequests requests(*this, job);
  std::vector<RowBatch> batches;
  for (ComposedBatch& composed : composer_.NextBlock(requests)) {
    batches.emplace_back(std::ssize(batches), plan_, std::move(composed.places),
                         options_.beginnings);
    for (ComposedRow& row : composed.rows) AddRow(std::move(row), batches.back());
  }
  return batches;
}

void BlockBuilder::Refill(RowBatch& batch, Job& job) {
  JobRequests requests(*this, job);
  for (ComposedRow& row : composer_.Refill(batch.places(), requests)) {
    AddRow(std::move(row), batch);
  }
}

}  // namespace spillway
