// CellPlaces: where the rows of one cell of the schedule are while it is computed. Plain values;
// the mover fills one, an executor reads it.
#pragma once

#include <cstddef>

#include "spillway/tier.h"

namespace spillway {

// Address of slot 0, or token 0, of each tier's share, in place or staged.
struct CellPlaces {
  PerTier<std::byte*> kv;
  PerTier<float*> hidden;
};

}  // namespace spillway
