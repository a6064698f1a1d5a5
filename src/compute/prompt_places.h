// PromptPlaces: the places of prompts' K and V in the workspace, while a pass of one batch goes
// chunk by chunk through an attention layer whose KV policy evicts. A prompt that the end of a
// chunk cuts keeps its place until its last chunk; there are two such places, used in turn, since
// the chunk that ends one prompt may begin the next. Prompts within a chunk lie one behind the
// other. Thread rule: one thread.
#pragma once

#include <cstdint>

#include "spillway/plan.h"
#include "src/device/packed_batch.h"

namespace spillway {

class PromptPlaces {
 public:
  explicit PromptPlaces(const PromptKvPlan& plan) : plan_(plan) {}

  // First slot of a prompt's own tokens, and the first column of all of its scores.
  struct Place {
    int64_t slot = 0;
    int64_t column = 0;
  };

  void BeginChunk() { next_ = {2 * plan_.longest_slots, 2 * CutColumns()}; }

  // Place of a prompt of which this chunk has `tokens`. Requires: prompts and chunks in ascending
  // order.
  Place PlaceOf(const PackedRow& prompt, const TokenRange& tokens);

 private:
  int64_t CutColumns() const { return plan_.prefix_tokens + plan_.longest_slots; }

  PromptKvPlan plan_;
  int64_t cut_ = 0;  // place, of the two, of the prompt that was cut last
  Place next_;       // free in this chunk
};

}  // namespace spillway
