// The normalisation table of a SentencePiece model: u32 size of a double array, the double array,
// strings that end in NUL. The keys of the double array are the texts that are replaced. Plain
// functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_set>

namespace spillway {

inline constexpr std::size_t kMaxJoinedPairs = 1'000'000;

// Two characters as one key.
constexpr uint64_t CharPair(char32_t first, char32_t second) {
  return uint64_t{first} << 32 | second;
}

// True when no lookup can leave the table, and none finds more than the library's 32 results.
bool IsSoundCharsMap(std::string_view table);

// The pairs of characters that stand side by side in some key: a text may be cut between any others
// without changing what becomes of it. Stops at kMaxJoinedPairs: then no text may be cut. Requires:
// IsSoundCharsMap, or an empty table.
std::unordered_set<uint64_t> JoinedPairs(std::string_view table);

}  // namespace spillway
