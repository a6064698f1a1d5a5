#include "src/tokenizer/chars_map.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace spillway {
namespace {

// The library's array for what a lookup finds.
constexpr int kMaxCharsMapResults = 32;

// One unit of the library's double array: a node, or a leaf's value (bit 31).
class Unit {
 public:
  explicit Unit(uint32_t bits) : bits_(bits) {}
  bool has_leaf() const { return (bits_ >> 8 & 1) != 0; }
  uint32_t value() const { return bits_ & 0x7FFFFFFFu; }
  uint32_t label() const { return bits_ & 0x800000FFu; }
  uint32_t offset() const { return (bits_ >> 10) << ((bits_ & 0x200u) >> 6); }

 private:
  uint32_t bits_;
};

uint32_t LoadU32(std::string_view bytes, std::size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Walks every path of a double array, which is a graph without circles: equal ends of keys are
// shared.
class CharsMapWalk {
 public:
  CharsMapWalk(std::string_view trie, std::size_t num_text_bytes)
      : trie_(trie),
        num_units_(trie.size() / 4),
        num_text_bytes_(num_text_bytes),
        results_(num_units_, kUnseen) {}

  // True when every step and every leaf stays inside, and no path has more leaves than the library
  // has room for.
  bool IsSound() {
    if (num_units_ == 0 || !Enter(0)) return false;
    while (!path_.empty()) {
      Step& step = path_.back();
      if (step.byte == 256) {
        Leave();
        continue;
      }
      const std::size_t child = step.children ^ step.byte;
      if (UnitAt(child).label() != step.byte++) continue;
      if (results_[child] == kOnPath) return false;
      if (results_[child] == kUnseen && !Enter(child)) return false;
      if (results_[child] >= 0) step.num_leaves = std::max(step.num_leaves, results_[child]);
    }
    return results_[0] <= kMaxCharsMapResults;
  }

 private:
  static constexpr int kUnseen = -2;
  static constexpr int kOnPath = -1;

  struct Step {
    std::size_t node;
    std::size_t children;  // the child for a byte is at children ^ byte
    std::size_t byte;      // the next one to look at; 0 is the leaf
    int num_leaves;        // the most on any path below
  };

  Unit UnitAt(std::size_t at) const { return Unit(LoadU32(trie_, at * 4)); }

  bool Enter(std::size_t node) {
    const std::size_t children = node ^ UnitAt(node).offset();
    if ((children | 0xFF) >= num_units_) return false;
    if (UnitAt(node).has_leaf() && UnitAt(children).value() >= num_text_bytes_) return false;
    results_[node] = kOnPath;
    path_.push_back({node, children, 1, 0});
    return true;
  }

  void Leave() {
    const Step step = path_.back();
    path_.pop_back();
    results_[step.node] = step.num_leaves + (UnitAt(step.node).has_leaf() ? 1 : 0);
    if (!path_.empty())
      path_.back().num_leaves = std::max(path_.back().num_leaves, results_[step.node]);
  }

  std::string_view trie_;
  std::size_t num_units_;
  std::size_t num_text_bytes_;
  std::vector<int> results_;  // by node: the most leaves on any path from it on
  std::vector<Step> path_;    // from the root
};

// Enumerates the characters that a key can go on with from a node: (character, node behind it).
class KeyChars {
 public:
  explicit KeyChars(std::string_view trie) : trie_(trie) {}

  struct Next {
    char32_t value;
    std::size_t node;
  };

  void From(std::size_t node, std::vector<Next>& out) {
    open_.assign(1, {node, 0, 0});
    while (!open_.empty()) {
      const Partial partial = open_.back();
      open_.pop_back();
      const std::size_t children = partial.node ^ UnitAt(partial.node).offset();
      const auto [first, last] = partial.depth == 0
                                     ? std::pair<std::size_t, std::size_t>{1, 0xF4}
                                     : std::pair<std::size_t, std::size_t>{0x80, 0xBF};
      for (std::size_t byte = first; byte <= last; ++byte) {
        if (UnitAt(children ^ byte).label() == byte)
          Step(partial, static_cast<unsigned>(byte), children ^ byte, out);
      }
    }
  }

 private:
  struct Partial {
    std::size_t node;
    char32_t value;
    int depth;        // bytes of the character so far
    int missing = 0;  // bytes of it to come
  };

  Unit UnitAt(std::size_t at) const { return Unit(LoadU32(trie_, at * 4)); }

  void Step(const Partial& partial, unsigned byte, std::size_t node, std::vector<Next>& out) {
    Partial next{node, 0, partial.depth + 1, partial.missing - 1};
    if (partial.depth == 0) {
      if (byte >= 0x80 && byte < 0xC2) return;
      next.missing = byte < 0x80 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
      constexpr std::array<unsigned, 4> kLeadBits = {0x7F, 0x1F, 0x0F, 0x07};
      next.value = byte & kLeadBits[static_cast<std::size_t>(next.missing)];
    } else {
      next.value = partial.value << 6 | (byte & 0x3F);
    }
    if (next.missing == 0) {
      out.push_back({next.value, node});
    } else {
      open_.push_back(next);
    }
  }

  std::string_view trie_;
  std::vector<Partial> open_;
};

}  // namespace

bool IsSoundCharsMap(std::string_view table) {
  if (table.size() < 4) return false;
  const std::size_t trie_bytes = LoadU32(table, 0);
  if (trie_bytes % 4 != 0 || trie_bytes >= table.size() - 4 || table.back() != '\0') return false;
  return CharsMapWalk(table.substr(4, trie_bytes), table.size() - 4 - trie_bytes).IsSound();
}

std::unordered_set<uint64_t> JoinedPairs(std::string_view table) {
  std::unordered_set<uint64_t> pairs;
  if (table.empty()) return pairs;
  KeyChars keys(table.substr(4, LoadU32(table, 0)));
  std::vector<KeyChars::Next> states;
  keys.From(0, states);
  std::unordered_set<uint64_t> seen;
  std::vector<KeyChars::Next> following;
  while (!states.empty() && pairs.size() < kMaxJoinedPairs) {
    const KeyChars::Next state = states.back();
    states.pop_back();
    if (!seen.insert(uint64_t{state.value} << 32 | state.node).second) continue;
    following.clear();
    keys.From(state.node, following);
    for (const KeyChars::Next& next : following) {
      pairs.insert(CharPair(state.value, next.value));
      states.push_back(next);
    }
  }
  return pairs;
}

}  // namespace spillway
