#include "src/tokenizer/added_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "spillway/error.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr int32_t kNoNode = -1;
// Published ones have a tenth of it; a node of the automaton takes 60 bytes.
constexpr std::size_t kMaxPatternBytes = std::size_t{4} << 20;

uint64_t EdgeKey(int32_t node, char byte) {
  return uint64_t{static_cast<uint32_t>(node)} << 8 | static_cast<unsigned char>(byte);
}

// Beginning of the white space that ends at `end`, not before `limit`.
std::size_t SpaceStart(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const CodePoint before = CodePointBefore(text, end);
    if (!IsStripChar(before.value)) break;
    end -= before.bytes;
  }
  return end;
}

std::size_t SpaceEnd(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint next = CodePointAt(text, at);
    if (!IsStripChar(next.value)) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens,
                                   const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)) {
  first_nodes_.fill(kNoNode);
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    num_bytes += patterns[i].size();
    if (num_bytes > kMaxPatternBytes)
      throw Error(ErrorCode::kTokenizer,
                  "the added tokens have more than 4 MiB; use the model's own tokenizer files");
    AddPattern(patterns[i], static_cast<int32_t>(i));
    lengths_.push_back(patterns[i].size());
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto child = children_.find(EdgeKey(0, static_cast<char>(byte)));
    if (child != children_.end()) first_nodes_[byte] = child->second;
  }
  SetFallbacks();
}

void AddedTokenFinder::AddPattern(std::string_view pattern, int32_t token) {
  if (pattern.empty()) return;
  int32_t node = 0;
  for (std::size_t at = pattern.size(); at > 0; --at) {
    const char byte = pattern[at - 1];
    const auto [child, added] =
        children_.try_emplace(EdgeKey(node, byte), static_cast<int32_t>(nodes_.size()));
    if (added) {
      const int32_t depth = nodes_[static_cast<std::size_t>(node)].depth + 1;
      nodes_.push_back({.parent = node, .depth = depth, .byte = byte});
    }
    node = child->second;
  }
  int32_t& owner = nodes_[static_cast<std::size_t>(node)].token;
  if (owner < 0) owner = token;
}

int32_t AddedTokenFinder::ChildOf(int32_t node, char byte) const {
  if (node == 0) return first_nodes_[static_cast<unsigned char>(byte)];
  const auto child = children_.find(EdgeKey(node, byte));
  return child == children_.end() ? kNoNode : child->second;
}

// Nodes nearer to the root come first, since the others build on them.
void AddedTokenFinder::SetFallbacks() {
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](int32_t node) { return nodes_[static_cast<std::size_t>(node)].depth; });
  for (const int32_t index : order) {
    Node& node = nodes_[static_cast<std::size_t>(index)];
    if (node.depth < 2) continue;
    int32_t suffix = nodes_[static_cast<std::size_t>(node.parent)].fallback;
    int32_t next = ChildOf(suffix, node.byte);
    while (next == kNoNode && suffix != 0) {
      suffix = nodes_[static_cast<std::size_t>(suffix)].fallback;
      next = ChildOf(suffix, node.byte);
    }
    node.fallback = next == kNoNode ? 0 : next;
    if (node.token < 0) node.token = nodes_[static_cast<std::size_t>(node.fallback)].token;
  }
}

AddedTokenFinder::Matches AddedTokenFinder::FindAll(std::string_view text) const {
  Matches found;
  int32_t node = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    const char byte = text[at - 1];
    int32_t next = ChildOf(node, byte);
    ++found.num_steps;
    for (; next == kNoNode && node != 0; ++found.num_steps) {
      node = nodes_[static_cast<std::size_t>(node)].fallback;
      next = ChildOf(node, byte);
    }
    node = next == kNoNode ? 0 : next;
    const int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token < 0) continue;
    found.matches.push_back({at - 1, at - 1 + lengths_[static_cast<std::size_t>(token)], token});
  }
  return found;
}

bool AddedTokenFinder::Counts(const AddedToken& token, std::string_view text, const Match& match,
                              SpecialText special) const {
  if (token.split || (special == SpecialText::kPlain && token.special)) return false;
  if (!token.single_word) return true;
  const bool free_left = match.begin == 0 || !IsWordChar(CodePointBefore(text, match.begin).value);
  const bool free_right =
      match.end == text.size() || !IsWordChar(CodePointAt(text, match.end).value);
  return free_left && free_right;
}

std::vector<Segment> AddedTokenFinder::Split(std::string_view text, SpecialText special) const {
  std::vector<Segment> segments;
  const Matches found = FindAll(text);
  std::size_t done = 0;       // everything before it is in a segment
  std::size_t space_end = 0;  // of the last white space behind a token, to look at it only once
  std::size_t free_from = 0;  // end of the last match
  for (auto at = found.matches.rbegin(); at != found.matches.rend(); ++at) {
    const Match& match = *at;
    if (match.begin < free_from) continue;
    free_from = match.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    if (!Counts(token, text, match, special)) continue;
    std::size_t start = match.begin;
    if (token.lstrip) start = std::max(done, SpaceStart(text, start, std::min(done, start)));
    std::size_t end = match.end;
    if (token.rstrip) end = space_end = end < space_end ? space_end : SpaceEnd(text, end);
    if (done < start) segments.push_back({text.substr(done, start - done), -1});
    segments.push_back({text.substr(match.end, 0), token.id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
  return segments;
}

}  // namespace spillway
