// KvPlace: where a row's KV lies within its batch's share of a tier. Plain values; any thread.
#pragma once

#include <cstdint>

namespace spillway {

// Slots of a row's KV in the decoder layers of one class (Plan::kv_classes), of all runs together
// (Plan::KvRuns). How much of it stays follows from the row's length.
struct KvPlace {
  int64_t slot_begin = 0;  // the row's first slot within its batch's share of its tier
  int64_t num_slots = 0;   // allocated to the row
  int64_t row_tokens = 0;  // prompt + max new tokens

  bool operator==(const KvPlace&) const = default;
};

}  // namespace spillway
