#include "src/unicode/regex.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr std::size_t kMaxNodes = 4096;

// Failures so many steps behind the last match are worth remembering: what they cost again and
// again could grow exponentially with the pattern's length.
constexpr std::size_t kManySteps = 10'000;

bool IsPlace(RegexItem::Kind place, std::string_view text, std::size_t at) {
  switch (place) {
    case RegexItem::Kind::kTextStart:
      return at == 0;
    case RegexItem::Kind::kTextEnd:
      return at == text.size();
    case RegexItem::Kind::kLineStart:
      return at == 0 || (at < text.size() && text[at - 1] == '\n');
    default:
      return at == text.size() || text[at] == '\n';
  }
}

}  // namespace

Regex::Regex(std::string_view pattern) {
  const std::vector<RegexSequence> branches = ParseRegex(pattern);
  Add({});
  Node whole;
  whole.kind = Node::Kind::kAnyOf;
  for (const RegexSequence& branch : branches) whole.branches.push_back(Compile(branch, kAccept));
  start_ = Add(std::move(whole));
  FindFirst();
}

std::size_t Regex::Add(Node node) {
  if (nodes_.size() == kMaxNodes)
    throw std::invalid_argument(fmt::format("it has over {} steps", kMaxNodes));
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

std::size_t Regex::Compile(const RegexSequence& sequence, std::size_t next) {
  for (auto item = sequence.rbegin(); item != sequence.rend(); ++item)
    next = CompileItem(*item, next);
  return next;
}

std::size_t Regex::CompileItem(const RegexItem& item, std::size_t next) {
  using Kind = RegexItem::Kind;
  Node node;
  node.next = next;
  node.min = item.min;
  node.max = item.max;
  node.possessive = item.possessive;
  if (item.kind == Kind::kRun) {
    node.kind = Node::Kind::kRun;
    node.set = sets_.size();
    sets_.push_back(item.set);
    return Add(std::move(node));
  }
  const bool looks = item.kind == Kind::kAhead || item.kind == Kind::kNotAhead;
  if (!looks && item.kind != Kind::kGroup) {
    node.kind = Node::Kind::kPlace;
    node.place = item.kind;
    return Add(std::move(node));
  }
  node.kind = item.kind == Kind::kAhead      ? Node::Kind::kAhead
              : item.kind == Kind::kNotAhead ? Node::Kind::kNotAhead
                                             : Node::Kind::kAnyOf;
  for (const RegexSequence& branch : item.branches)
    node.branches.push_back(Compile(branch, looks ? kAccept : next));
  if (item.kind == Kind::kGroup && item.min == 0) node.branches.push_back(next);
  return Add(std::move(node));
}

void Regex::FindFirst() {
  std::vector<bool> seen(nodes_.size());
  std::vector<std::size_t> open = {start_};
  while (!open.empty()) {
    const std::size_t index = open.back();
    open.pop_back();
    if (seen[index]) continue;
    seen[index] = true;
    const Node& node = nodes_[index];
    if (node.kind == Node::Kind::kAccept) throw std::invalid_argument("it matches an empty text");
    if (node.kind == Node::Kind::kAnyOf) {
      open.insert(open.end(), node.branches.begin(), node.branches.end());
      continue;
    }
    if (node.kind == Node::Kind::kRun) first_.Add(sets_[node.set]);
    if (node.kind != Node::Kind::kRun || node.min == 0) open.push_back(node.next);
  }
  first_.Finish();
}

std::optional<RegexSearch::Match> RegexSearch::Next() {
  num_steps_ = 0;
  while (at_ < text_.size()) {
    const std::size_t begin = at_;
    const CodePoint point = CodePointAt(text_, begin);
    at_ += point.bytes;
    if (!regex_.first_.Contains(point.value)) continue;
    const std::size_t end = MatchFrom(regex_.start_, begin);
    if (end == kNoMatch) continue;
    at_ = end;
    return Match{begin, end};
  }
  return std::nullopt;
}

std::size_t RegexSearch::MatchFrom(std::size_t index, std::size_t at) {
  const Node& node = regex_.nodes_[index];
  ++num_steps_;
  switch (node.kind) {
    case Node::Kind::kAccept:
      return at;
    case Node::Kind::kRun:
      return MatchRun(index, at);
    case Node::Kind::kAnyOf:
      return MatchAnyOf(index, at);
    case Node::Kind::kPlace:
      return IsPlace(node.place, text_, at) ? MatchFrom(node.next, at) : kNoMatch;
    default: {
      const bool found = MatchAnyOf(index, at) != kNoMatch;
      return found == (node.kind == Node::Kind::kAhead) ? MatchFrom(node.next, at) : kNoMatch;
    }
  }
}

std::size_t RegexSearch::MatchAnyOf(std::size_t index, std::size_t at) {
  if (!failed_.empty() && failed_.contains(StateKey(index, at))) return kNoMatch;
  for (const std::size_t branch : regex_.nodes_[index].branches) {
    const std::size_t end = MatchFrom(branch, at);
    if (end != kNoMatch) return end;
  }
  RememberFailure(index, at);
  return kNoMatch;
}

std::size_t RegexSearch::MatchRun(std::size_t index, std::size_t at) {
  Match& failed = failed_runs_[index];
  if (at >= failed.begin && at <= failed.end) return kNoMatch;
  if (!failed_.empty() && failed_.contains(StateKey(index, at))) return kNoMatch;
  const Node& node = regex_.nodes_[index];
  const Run longest = LongestRun(node, at);
  if (longest.count < node.min) return kNoMatch;
  if (node.next == Regex::kAccept) return longest.end;
  std::size_t end = longest.end;
  for (uint32_t count = longest.count;; --count) {
    const std::size_t match = MatchFrom(node.next, end);
    if (match != kNoMatch) return match;
    if (node.possessive || count == node.min) break;
    end -= CodePointBefore(text_, end).bytes;
  }
  if (node.max == RegexItem::kNoLimit) {
    failed = {at, longest.end};
  } else {
    RememberFailure(index, at);
  }
  return kNoMatch;
}

RegexSearch::Run RegexSearch::LongestRun(const Node& node, std::size_t at) const {
  const CharSet& set = regex_.sets_[node.set];
  Run run{at, 0};
  while (run.count < node.max && run.end < text_.size()) {
    const CodePoint point = CodePointAt(text_, run.end);
    if (!set.Contains(point.value)) break;
    run.end += point.bytes;
    ++run.count;
  }
  return run;
}

uint64_t RegexSearch::StateKey(std::size_t node, std::size_t at) const {
  return uint64_t{node} << 48 | at;
}

void RegexSearch::RememberFailure(std::size_t node, std::size_t at) {
  if (num_steps_ >= kManySteps) failed_.insert(StateKey(node, at));
}

}  // namespace spillway
