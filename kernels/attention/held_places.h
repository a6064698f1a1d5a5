// Places of the tokens that a KV head holds: the newest one's is given, and the others have those
// before it in the order of their positions. The recent ones lie one behind the other, so that only
// older ones, heavy hitters and first tokens, are sorted. Plain functions; any thread. Allocate
// nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spillway::kernels {

struct HeldToken {
  uint32_t position;
  int32_t slot;
};

// Tokens in slots [0, num_held), of which those at the last num_recent positions up to `newest` are
// all held, as far as the row has so many.
struct HeldTokens {
  int64_t num_held = 0;
  int64_t num_recent = 0;
  int64_t newest = 0;
  int64_t newest_place = 0;  // at least num_held - 1
};

// Sorts by position, byte by byte, as far as `highest` has bytes. Returns where the sorted tokens
// are: in `tokens` or in `other`, of equal size.
inline std::span<HeldToken> SortByPosition(std::span<HeldToken> tokens, std::span<HeldToken> other,
                                           uint32_t highest) {
  for (unsigned shift = 0; shift < 32 && (highest >> shift) != 0; shift += 8) {
    std::array<uint32_t, 257> ends{};
    const auto byte_of = [&](const HeldToken& token) { return token.position >> shift & 0xFFU; };
    for (const HeldToken& token : tokens) ++ends[byte_of(token) + 1];
    for (std::size_t byte = 1; byte < ends.size(); ++byte) ends[byte] += ends[byte - 1];
    for (const HeldToken& token : tokens) other[ends[byte_of(token)]++] = token;
    std::swap(tokens, other);
  }
  return tokens;
}

// position_of(slot): int32. Writes each slot's place. `workspace`: [2 * num_held].
template <typename PositionOf>
void FindPlaces(const HeldTokens& tokens, const PositionOf& position_of,
                std::span<HeldToken> workspace, std::span<int32_t> places) {
  const int64_t first_recent = tokens.newest + 1 - tokens.num_recent;
  std::size_t num_older = 0;
  for (int64_t slot = 0; slot < tokens.num_held; ++slot) {
    const int32_t position = position_of(slot);
    if (position < first_recent) {
      workspace[num_older++] = {static_cast<uint32_t>(position), static_cast<int32_t>(slot)};
    } else {
      places[static_cast<std::size_t>(slot)] =
          static_cast<int32_t>(tokens.newest_place - (tokens.newest - position));
    }
  }
  if (num_older == 0) return;
  const std::span<HeldToken> sorted =
      SortByPosition(workspace.first(num_older), workspace.subspan(num_older, num_older),
                     static_cast<uint32_t>(first_recent));
  auto place = static_cast<int32_t>(tokens.newest_place + 1 - tokens.num_held);
  for (const HeldToken& token : sorted) places[static_cast<std::size_t>(token.slot)] = place++;
}

}  // namespace spillway::kernels
