// Block: the rows that run together, in batches, each row with a place in its batch's KV. A row
// that ends leaves; a waiting request takes its place at the next pass (rolling blocks).
// Composition depends on the input and the plan only, never on timing. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "spillway/plan.h"
#include "src/device/packed_batch.h"
#include "src/run/job.h"
#include "src/sampling/next_token.h"

namespace spillway {

// Requests sorted at a time: enough blocks that like lengths meet, few enough that the output's
// order costs no memory.
inline constexpr int64_t kBlocksPerWindow = 4;

// A request on its way through the passes. Not movable: what tells its next token
// refers to the request.
struct Row {
  Row(Request r, const Tokenizer& tokenizer, std::span<const TokenId> eos, uint64_t run_seed)
      : request(std::move(r)), next(MakeNextToken(request, tokenizer, eos, run_seed)) {}
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Request request;
  std::unique_ptr<NextToken> next;
  Tier kv_tier = Tier::kCpu;
  std::vector<KvPlace> kv_places;  // [class]
  int64_t log_place = -1;          // of KvLogPlan's; -1: it needs none
  Tier hidden_tier = Tier::kCpu;
  int64_t num_past = 0;    // tokens whose K and V are stored
  int64_t num_logits = 0;  // that it was given and that were finite

  RequestShape shape() const { return ShapeOf(request); }

  // What it feeds into the next pass: its whole prompt the first time, its last token afterwards.
  int64_t NumNew() const { return num_past == 0 ? static_cast<int64_t>(request.prompt.size()) : 1; }
  int64_t NumDecoded() const {
    return num_past == 0 ? 0 : num_past - static_cast<int64_t>(request.prompt.size());
  }
  // Of how many of them, the last ones, logits are wanted.
  int64_t NumNewLogits() const { return num_past == 0 ? request.NumPromptLogits() : 1; }
};

// The running rows of one batch and the tokens they feed into the current pass. A row's KV and
// hidden states go to the first tier that has room for them.
class RowBatch {
 public:
  // Lifetime: the plan outlives the batch.
  RowBatch(int64_t index, const Plan& plan);

  // Whether a request of this shape has room in the next pass.
  bool Admits(const RequestShape& request) const;
  void Add(std::unique_ptr<Row> row);

  // Lists this pass's tokens, by the tier of their hidden states.
  void Pack();

  // Turns to the next of the wanted logits, as many as the plan has room for; false when the head
  // has computed all.
  bool NextLogits();

  // After the pass: what was packed is now stored.
  void Advance();

  // Takes out the rows for which `ended` is true; their places are free again.
  template <typename F>
  void Remove(F ended) {
    std::erase_if(rows_, [&](const std::unique_ptr<Row>& row) {
      if (!ended(*row)) return false;
      Free(*row);
      return true;
    });
  }

  const PackedBatch& packed() const { return packed_; }
  const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }
  bool IsFull() const { return static_cast<int64_t>(rows_.size()) == plan_->batch.rows; }

 private:
  // Slots [begin, begin + size) of a tier's share that no row has.
  struct Gap {
    int64_t begin = 0;
    int64_t size = 0;
  };

  std::optional<Tier> KvTier(int64_t row_tokens) const;
  KvPlace Take(Tier tier, std::size_t kv_class, int64_t row_tokens);
  std::optional<Tier> HiddenTier(int64_t prompt_tokens) const;
  bool HasLogPlace(Tier tier, int64_t row_tokens) const;
  int64_t TakeLogPlace(Tier tier);
  void Free(const Row& row);
  static void Free(std::vector<Gap>& gaps, const KvPlace& place);

  const Plan* plan_;
  PerTier<std::vector<std::vector<Gap>>> gaps_;  // [class]: ascending, never touching
  std::vector<bool> log_places_;                 // of KvLogPlan: whether a row has it
  std::vector<std::unique_ptr<Row>> rows_;       // by the tier of their hidden states
  PackedBatch packed_;
};

// Cuts a job into blocks: reads a window of requests, sorts it by length (longest first, ties in
// input order) and fills batch after batch. Sorting keeps rows of a block alike, so that they end
// together. Rows that end early are replaced from the window, longest first again.
class BlockBuilder {
 public:
  struct Options {
    const Tokenizer* tokenizer = nullptr;
    uint64_t run_seed = 0;
  };
  BlockBuilder(const Plan& plan, Options options);

  // The next block's batches, none empty; empty at the end of the job.
  std::vector<RowBatch> Next(Job& job);

  // Gives waiting requests the places that rows of the batch have left.
  void Refill(RowBatch& batch, Job& job);

 private:
  void FillWindow(Job& job);
  std::unique_ptr<Row> TakeRow(std::size_t index);
  const Plan& plan_;
  Options options_;
  std::vector<Request> window_;  // sorted, the next request last
};

}  // namespace spillway
