// Block: the rows that run together, in batches, each row with a place in its batch's KV. A row
// that ends leaves; a waiting request takes its place at the next pass (rolling blocks). Which rows
// run together, and where, is the Composer's; here is what belongs to real rows: tokens and what
// chooses the next one. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "spillway/plan.h"
#include "src/device/packed_batch.h"
#include "src/run/job.h"
#include "src/run/shared_beginnings.h"
#include "src/sampling/next_token.h"
#include "src/walk/batch_places.h"
#include "src/walk/composer.h"

namespace spillway {

// A request on its way through the passes. Not movable: what tells its next token
// refers to the request.
struct Row {
  Row(Request r, const Tokenizer& tokenizer, std::span<const TokenId> eos, uint64_t run_seed)
      : request(std::move(r)), next(MakeNextToken(request, tokenizer, eos, run_seed)) {}
  Row(const Row&) = delete;
  Row& operator=(const Row&) = delete;

  Request request;
  std::unique_ptr<NextToken> next;
  RowPlaces places;          // in its batch
  int64_t num_prefix = 0;    // of the prompt: tokens that the plan's prefix holds for all rows
  int64_t num_apart = 0;     // of them: those that the row's cache leaves out, all or none
  int64_t newest_place = 0;  // PackedRow::newest_place
  int64_t num_past = 0;      // tokens behind these whose K and V are stored
  int64_t num_logits = 0;    // that it was given and that were finite
  int64_t num_shared = 0;    // tokens of its prompt whose K and V others had; known once it is fed

  // The prompt behind the prefix.
  std::span<const TokenId> OwnPrompt() const {
    return std::span(request.prompt).subspan(static_cast<std::size_t>(num_prefix));
  }
  // Tokens that it feeds into the next pass: its whole own prompt the first time, its last token
  // afterwards.
  int64_t NumNew() const { return num_past == 0 ? std::ssize(OwnPrompt()) : 1; }
  int64_t NumDecoded() const {
    return num_past == 0 ? 0 : num_apart + num_past - std::ssize(request.prompt);
  }
  // Passes to go if nothing ends it early, the next one included.
  int64_t PassesToEnd() const {
    const int64_t max_tokens = request.sampling.max_tokens;
    return num_past == 0 ? std::max<int64_t>(1, max_tokens)
                         : std::max<int64_t>(0, max_tokens - 1 - NumDecoded());
  }
  // How many of them, the last ones, logits are wanted of.
  int64_t NumNewLogits() const { return num_past == 0 ? request.NumPromptLogits() : 1; }
};

// Whether prompts that begin alike are computed from there on.
enum class Beginnings { kApart, kShared };

// The running rows of one batch and the tokens they feed into the current pass.
class RowBatch {
 public:
  // `places`: of batch `index` of the plan, which Beginnings::kShared needs to allow it
  // (SharesBeginnings). Lifetime: the plan outlives the batch.
  RowBatch(int64_t index, const Plan& plan, BatchPlaces places, Beginnings beginnings);

  // Requires: the row's places are of this batch's.
  void Add(std::unique_ptr<Row> row);

  // Lists this pass's tokens, by the tier of their hidden states.
  void Pack();

  // Turns to the next of the wanted logits, as many as the plan has room for; false when the head
  // has computed all.
  bool NextLogits();

  // Takes note that the pass has ended: what was packed is now stored.
  void Advance();

  // Takes out the rows for which `ended` is true; their places are free again.
  template <typename F>
  void Remove(F ended) {
    std::erase_if(rows_, [&](const std::unique_ptr<Row>& row) {
      if (!ended(*row)) return false;
      places_.Free(row->places, row->NumNew());
      return true;
    });
  }

  const PackedBatch& packed() const { return packed_; }
  const std::vector<std::unique_ptr<Row>>& rows() const { return rows_; }
  BatchPlaces& places() { return places_; }

 private:
  void FindBeginnings();
  void PackRow(const Row& row, const SharedBeginnings::Beginning& shared);

  const Plan* plan_;
  BatchPlaces places_;
  Beginnings beginnings_;
  std::vector<std::unique_ptr<Row>> rows_;  // by the tier of their hidden states
  SharedBeginnings prompts_;
  std::vector<SharedBeginnings::Beginning> shared_;  // [row], of the pass
  PackedBatch packed_;
};

// Cuts a job into blocks, as a Composer decides.
class BlockBuilder {
 public:
  struct Options {
    const Tokenizer* tokenizer = nullptr;
    uint64_t run_seed = 0;
    Beginnings beginnings = Beginnings::kApart;
  };
  // Lifetime: the plan and what the options name outlive this.
  BlockBuilder(const Plan& plan, Options options)
      : plan_(plan), options_(options), composer_(plan) {}

  // The next block's batches, none empty; empty at the end of the job.
  // Throws: Error kResume for a request that the plan has no room for, and what the job throws.
  std::vector<RowBatch> Next(Job& job);

  // Gives waiting requests the places that rows of the batch have left. Throws: as Next.
  void Refill(RowBatch& batch, Job& job);

 private:
  class JobRequests;  // a job's requests on their way into waiting_

  void CheckLess(const Request& request) const;
  // Throws: Error kResume for a request that does not begin with the plan's prefix.
  void RefuseOtherPrefix(const Request& request) const;
  void AddRow(ComposedRow composed, RowBatch& batch);

  const Plan& plan_;
  Options options_;
  Composer composer_;
  int64_t num_read_ = 0;                          // of the job's requests
  std::unordered_map<int64_t, Request> waiting_;  // by their number
};

}  // namespace spillway
