// Block: the rows that run together, in batches, each row with a place in its batch's KV.
// Composition depends on the input and the plan only, never on timing. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "spillway/plan.h"
#include "src/execute/job.h"
#include "src/execute/packed_batch.h"
#include "src/requests/sampler.h"

namespace spillway {

// A request on its way through the passes. Not movable: the sampler refers to the request.
struct Row {
  Row(Request r, const Tokenizer& tokenizer, std::span<const TokenId> eos, uint64_t run_seed)
      : request(std::move(r)), sampler(request, tokenizer, eos, run_seed) {}
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Request request;
  RowSampler sampler;
  int64_t slot_begin = 0;
  int64_t num_slots = 0;
  int64_t num_past = 0;  // tokens whose K and V are stored
};

// The running rows of one batch and the tokens they feed into the current pass.
class RowBatch {
 public:
  RowBatch(int64_t index, const BatchCapacity& capacity);

  // Whether a request of this shape still has room.
  bool Admits(int64_t slots, int64_t prompt_tokens) const;
  void Add(std::unique_ptr<Row> row, int64_t slots);

  // Lists this pass's tokens: a row's whole prompt the first time, its last token afterwards.
  void Pack();

  // After the pass: what was packed is now stored.
  void Advance();

  const PackedBatch& packed() const { return packed_; }
  std::vector<std::unique_ptr<Row>>& rows() { return rows_; }
  const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }

 private:
  BatchCapacity free_;
  int64_t next_slot_ = 0;
  std::vector<std::unique_ptr<Row>> rows_;
  PackedBatch packed_;
};

// Cuts a job into blocks: reads a window of requests, sorts it by length (longest first, ties in
// input order) and fills batch after batch. Sorting keeps rows of a block alike, so that they end
// together.
class BlockBuilder {
 public:
  struct Options {
    const Tokenizer* tokenizer = nullptr;
    uint64_t run_seed = 0;
  };
  BlockBuilder(const Plan& plan, Options options);

  // The next block's batches, none empty; empty at the end of the job.
  std::vector<RowBatch> Next(Job& job);

 private:
  void FillWindow(Job& job);
  int64_t SlotsOf(const Request& request) const;

  const Plan& plan_;
  Options options_;
  std::vector<Request> window_;  // sorted, the next request last
};

}  // namespace spillway
