// Places of the tokens that a KV head holds: their numbers in the order of positions, from 0. The
// recent ones lie one behind the other, so that only older ones, heavy hitters and first tokens,
// are sorted. Plain functions; any thread. Allocate nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace spillway::kernels {

struct HeldToken {
  int32_t position;
  int32_t slot;
};

// Tokens in slots [0, num_held), of which those at the last num_recent positions up to `newest` are
// all held, as far as the row has so many.
struct HeldTokens {
  int64_t num_held = 0;
  int64_t num_recent = 0;
  int64_t newest = 0;
};

// position_of(slot): int32. Writes each slot's place. `older`: workspace, [num_held].
template <typename PositionOf>
void FindPlaces(const HeldTokens& tokens, const PositionOf& position_of, std::span<HeldToken> older,
                std::span<int32_t> places) {
  const int64_t first_recent = tokens.newest + 1 - tokens.num_recent;
  const int64_t last_place = tokens.num_held - 1;
  std::size_t num_older = 0;
  for (int64_t slot = 0; slot < tokens.num_held; ++slot) {
    const int32_t position = position_of(slot);
    if (position < first_recent) {
      older[num_older++] = {position, static_cast<int32_t>(slot)};
    } else {
      places[static_cast<std::size_t>(slot)] =
          static_cast<int32_t>(last_place - (tokens.newest - position));
    }
  }
  const std::span<HeldToken> sorted = older.first(num_older);
  std::ranges::sort(sorted, {}, &HeldToken::position);
  for (std::size_t place = 0; place < num_older; ++place)
    places[static_cast<std::size_t>(sorted[place].slot)] = static_cast<int32_t>(place);
}

}  // namespace spillway::kernels
