#include "src/tokenizer/text_split.h"

#include <algorithm>

#include "src/unicode/utf8.h"

namespace spillway {
namespace {

// A part of the text; parts cover it.
struct Part {
  std::size_t begin;
  std::size_t end;
  bool is_match;
};

// Appends matches in order, and what lies between them.
class PartList {
 public:
  explicit PartList(std::string_view text) : text_(text) {}

  void AddMatch(std::size_t begin, std::size_t end) {
    AddBetween(begin);
    parts_.push_back({begin, end, true});
    done_ = end;
  }

  std::vector<Part> Finish() {
    AddBetween(text_.size());
    return std::move(parts_);
  }

 private:
  void AddBetween(std::size_t end) {
    if (done_ < end) parts_.push_back({done_, end, false});
  }

  std::string_view text_;
  std::vector<Part> parts_;
  std::size_t done_ = 0;
};

void FindAll(const SplitPattern& pattern, std::string_view text, PartList& out) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = MatchEnd(pattern, text, at);
    out.AddMatch(at, end);
    at = end;
  }
}

void FindAll(const Regex& regex, std::string_view text, PartList& out) {
  RegexSearch search(regex, text);
  while (const auto match = search.Next()) out.AddMatch(match->begin, match->end);
}

void FindAll(const std::string& what, std::string_view text, PartList& out) {
  for (std::size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    out.AddMatch(at, at + what.size());
  }
}

void FindAll(const CharTest& test, std::string_view text, PartList& out) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    if (test(point.value)) out.AddMatch(at, at + point.bytes);
    at += point.bytes;
  }
}

// True when parts[i] is one piece with parts[i - 1].
bool JoinsPrevious(SplitBehavior behavior, const std::vector<Part>& parts, std::size_t i) {
  if (i == 0) return false;
  const bool before = parts[i - 1].is_match, here = parts[i].is_match;
  switch (behavior) {
    case SplitBehavior::kMergedWithPrevious:
      return here && !before;
    case SplitBehavior::kMergedWithNext:
      return before && !here;
    case SplitBehavior::kContiguous:
      return before == here;
    default:
      return false;
  }
}

}  // namespace

std::vector<std::string_view> SplitText(const SplitStep& step, std::string_view text) {
  PartList list(text);
  std::visit([&](const auto& target) { FindAll(target, text, list); }, step.target);
  std::vector<Part> parts = list.Finish();
  if (step.inverted) {
    for (Part& part : parts) part.is_match = !part.is_match;
  }
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;  // of the piece that the next part may join
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (step.behavior == SplitBehavior::kRemoved && parts[i].is_match) continue;
    const bool joins = JoinsPrevious(step.behavior, parts, i);
    if (joins) {
      pieces.pop_back();
    } else {
      begin = parts[i].begin;
    }
    pieces.push_back(text.substr(begin, parts[i].end - begin));
  }
  return pieces;
}

}  // namespace spillway
