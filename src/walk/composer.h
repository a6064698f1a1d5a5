// Composer: which requests run together. Reads a window of requests, sorts it by length (longest
// first, in the slots that memory rounds lengths to) and fills batch after batch of a block. Equal
// ones stay in input order; those that a window leaves over are turned round by the next one.
// Sorting keeps the rows of a block alike, so that they end together; rows that end early are
// replaced from the window, longest first again. Lengths and the plan alone decide, never timing or
// tokens: a run and its simulation compose the same blocks.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spillway/plan.h"
#include "spillway/workload.h"
#include "src/walk/batch_places.h"

namespace spillway {

// Blocks of requests that are sorted at a time: enough for like lengths to come together, few
// enough for the output's order to cost no memory.
inline constexpr int64_t kBlocksPerWindow = 4;

struct WaitingRequest {
  int64_t number = 0;  // which one, as its source counts them
  RequestShape shape;
};

// Requests in input order.
class RequestSource {
 public:
  virtual ~RequestSource() = default;

  // nullopt at the end, and whenever it is asked again.
  virtual std::optional<WaitingRequest> Next() = 0;

  // The plan has no room for this request, not even in an empty batch. Throws: always.
  [[noreturn]] virtual void Refuse(const WaitingRequest& request) = 0;
};

struct ComposedRow {
  WaitingRequest request;
  RowPlaces places;
};

// A batch as a block begins with it.
struct ComposedBatch {
  BatchPlaces places;
  std::vector<ComposedRow> rows;
};

class Composer {
 public:
  // Lifetime: the plan outlives the composer.
  explicit Composer(const Plan& plan) : plan_(plan) {}

  // The next block's batches, none empty; empty at the end of the source.
  std::vector<ComposedBatch> NextBlock(RequestSource& source);

  // Waiting requests take the places that rows of the batch have left.
  std::vector<ComposedRow> Refill(BatchPlaces& batch, RequestSource& source);

 private:
  void FillWindow(RequestSource& source);

  const Plan& plan_;
  std::vector<WaitingRequest> window_;  // sorted, the next request last
};

}  // namespace spillway
