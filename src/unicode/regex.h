// A pattern of a tokenizer's file, matched as Oniguruma matches it: at each place the first
// alternative that fits, runs as long as possible. The stack is bounded by the pattern, not by the
// text; time by the square of the text's length, and linear with published patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/unicode/char_set.h"
#include "src/unicode/regex_syntax.h"

namespace spillway {

// Thread rule: immutable after construction; const methods from any thread.
class Regex {
 public:
  // Throws: std::invalid_argument, printable, that names what is not supported. Requires: valid
  // UTF-8.
  explicit Regex(std::string_view pattern);

 private:
  friend class RegexSearch;

  // One step of a match; `next` is the step behind it.
  struct Node {
    enum class Kind { kRun, kAnyOf, kAhead, kNotAhead, kPlace, kAccept };
    Kind kind = Kind::kAccept;
    RegexItem::Kind place = RegexItem::Kind::kTextStart;  // of kPlace
    bool possessive = false;
    std::size_t set = 0;  // of kRun, in sets_
    uint32_t min = 0;
    uint32_t max = 0;
    std::vector<std::size_t> branches;  // of kAnyOf, kAhead and kNotAhead: their first steps
    std::size_t next = 0;
  };

  static constexpr std::size_t kAccept = 0;

  std::size_t Add(Node node);
  std::size_t Compile(const RegexSequence& sequence, std::size_t next);
  std::size_t CompileItem(const RegexItem& item, std::size_t next);
  void FindFirst();

  std::vector<CharSet> sets_;
  std::vector<Node> nodes_;
  std::size_t start_ = kAccept;
  CharSet first_;  // every match begins with one of these
};

// The matches of one text, from left to right. Lifetime: regex and text must outlive it. Thread
// rule: one thread.
class RegexSearch {
 public:
  struct Match {
    std::size_t begin;
    std::size_t end;
  };

  // Requires: valid UTF-8.
  RegexSearch(const Regex& regex, std::string_view text)
      : regex_(regex), text_(text), failed_runs_(regex.nodes_.size(), Match{1, 0}) {}

  // The next match, which is never empty.
  std::optional<Match> Next();

 private:
  using Node = Regex::Node;

  struct Run {
    std::size_t end;
    uint32_t count;  // of characters
  };

  static constexpr std::size_t kNoMatch = ~std::size_t{0};

  std::size_t MatchFrom(std::size_t node, std::size_t at);
  std::size_t MatchRun(std::size_t node, std::size_t at);
  std::size_t MatchAnyOf(std::size_t node, std::size_t at);
  Run LongestRun(const Node& node, std::size_t at) const;
  uint64_t StateKey(std::size_t node, std::size_t at) const;
  void RememberFailure(std::size_t node, std::size_t at);

  const Regex& regex_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t num_steps_ = 0;            // since the last match
  std::unordered_set<uint64_t> failed_;  // nothing matches from these states on
  // The last run of each node without a limit behind which nothing matched. Nothing does behind a
  // part of it either.
  std::vector<Match> failed_runs_;
};

}  // namespace spillway
