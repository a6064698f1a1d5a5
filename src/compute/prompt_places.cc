#include "src/compute/prompt_places.h"

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway {

int64_t PromptPlaces::Place(const PackedRow& prompt, const TokenRange& tokens) {
  const bool begins = tokens.begin == prompt.token_offset;
  const bool ends = tokens.end == prompt.token_offset + prompt.num_new;
  if (begins && ends) {
    const int64_t place = next_;
    next_ += RoundUp(prompt.num_new, plan_.align);
    SPILLWAY_CHECK(next_ <= plan_.slots());
    return place;
  }
  SPILLWAY_CHECK(prompt.num_new <= plan_.longest_slots);
  if (begins) cut_ = 1 - cut_;
  return cut_ * plan_.longest_slots;
}

}  // namespace spillway
