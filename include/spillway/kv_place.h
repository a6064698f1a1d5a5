// KvPlace: where a row's KV lies within its batch's share of a tier. Plain values; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "spillway/kv_policy.h"

namespace spillway {

// Slots of a row's KV in the decoder layers of one class (Plan::kv_classes), and how much of
// it stays.
struct KvPlace {
  int64_t slot_begin = 0;  // the row's first slot within its batch's share of its tier
  int64_t num_slots = 0;   // allocated to the row
  KvKeep keep;

  // Tokens in the cache when the row has this many.
  int64_t NumHeld(int64_t num_tokens) const { return std::min(num_tokens, keep.slots()); }

  bool operator==(const KvPlace&) const = default;
};

}  // namespace spillway
