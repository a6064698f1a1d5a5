#include "src/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr int32_t kNoNode = -1;

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
  for (std::size_t i = 0; i < patterns.size(); ++i)
    AddPattern(patterns[i], static_cast<int32_t>(i));
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto child = children_.find(EdgeKey(0, static_cast<char>(byte)));
    if (child != children_.end()) first_nodes_[byte] = child->second;
  }
}

void AddedTokenFinder::AddPattern(std::string_view pattern, int32_t token) {
  if (pattern.empty()) return;
  int32_t node = 0;
  for (const char byte : pattern) {
    const auto [child, added] =
        children_.try_emplace(EdgeKey(node, byte), static_cast<int32_t>(token_of_node_.size()));
    if (added) token_of_node_.push_back(-1);
    node = child->second;
  }
  int32_t& owner = token_of_node_[static_cast<std::size_t>(node)];
  if (owner < 0) owner = token;
}

AddedTokenFinder::Match AddedTokenFinder::LongestAt(std::string_view text, std::size_t at) const {
  Match longest;
  int32_t node = first_nodes_[static_cast<unsigned char>(text[at])];
  while (node != kNoNode) {
    ++at;
    const int32_t token = token_of_node_[static_cast<std::size_t>(node)];
    if (token >= 0) longest = {at, token};
    if (at == text.size()) break;
    const auto child = children_.find(EdgeKey(node, text[at]));
    node = child == children_.end() ? kNoNode : child->second;
  }
  return longest;
}

bool AddedTokenFinder::Counts(const AddedToken& token, std::string_view text, std::size_t start,
                              std::size_t end, SpecialText special) const {
  if (special == SpecialText::kPlain && token.special) return false;
  if (!token.single_word) return true;
  const bool free_left = start == 0 || !IsWordChar(CodePointBefore(text, start).value);
  const bool free_right = end == text.size() || !IsWordChar(CodePointAt(text, end).value);
  return free_left && free_right;
}

std::vector<Segment> AddedTokenFinder::Split(std::string_view text, SpecialText special) const {
  std::vector<Segment> segments;
  std::size_t done = 0;  // everything before it is in a segment
  std::size_t space_end =
      0;  // where the last white space behind a token ended, to look at it only once
  for (std::size_t at = 0; at < text.size();) {
    const Match match = LongestAt(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    std::size_t start = std::exchange(at, match.end);
    if (!Counts(token, text, start, match.end, special)) continue;
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
