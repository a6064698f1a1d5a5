#include "src/compute/prompt_places.h"

#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"

namespace spillway {

PromptPlaces::Place PromptPlaces::PlaceOf(const PackedRow& prompt, const TokenRange& tokens) {
  const bool begins = tokens.begin == prompt.token_offset;
  const bool ends = tokens.end == prompt.token_offset + prompt.num_new;
  if (begins && ends) {
    const Place place = next_;
    const int64_t own = RoundUp(prompt.num_new, plan_.align);
    next_.slot += own;
    next_.column += plan_.prefix_tokens + own;
    SPILLWAY_CHECK(next_.slot <= plan_.slots() && next_.column <= plan_.columns());
    return place;
  }
  SPILLWAY_CHECK(prompt.num_new <= plan_.longest_slots);
  if (begins) cut_ = 1 - cut_;
  return {cut_ * plan_.longest_slots, cut_ * CutColumns()};
}

}  // namespace spillway
