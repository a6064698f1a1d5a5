// KV block: the unit in which a row's K and V are laid out, moved and checked.
// One layer's cache of a row is [slot / 16][K|V][kv_head][slot % 16][head_dim]: the newest tokens
// of all heads are one contiguous run, so that appending to KV on disk rewrites 16 slots and not
// the row.
#pragma once

#include <cstdint>

namespace spillway {

inline constexpr int64_t kKvBlockSlots = 16;

}  // namespace spillway
