#include "src/unicode/regex_syntax.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "spillway/error.h"  // Printable
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

using Kind = RegexItem::Kind;

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr int kMaxDepth = 16;
constexpr uint32_t kMaxCount = 1000;

// Pairs of letters that are one character in another case ("ss" and the sharp s), which a pattern
// that ignores case would match too.
constexpr std::array<std::string_view, 5> kFoldedPairs = {"ss", "st", "ff", "fi", "fl"};

char32_t Lower(char32_t c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; }

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  std::vector<RegexSequence> Whole() {
    if (pattern_.size() > kMaxPatternBytes)
      Refuse(fmt::format("it has over {} bytes", kMaxPatternBytes));
    if (Take("(?i)")) ignore_case_ = true;
    std::vector<RegexSequence> branches = Alternatives();
    if (at_ < pattern_.size()) Refuse("a ) without its (");
    return branches;
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const { throw std::invalid_argument(what); }

  // Refuses what begins at `from`, by its text.
  [[noreturn]] void RefuseFrom(std::size_t from, std::size_t bytes) const {
    Refuse(fmt::format("\"{}\"", Printable(pattern_.substr(from, bytes))));
  }

  bool AtEnd() const { return at_ == pattern_.size(); }
  char Peek() const { return AtEnd() ? '\0' : pattern_[at_]; }

  bool Take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  char32_t TakeChar() {
    if (AtEnd()) Refuse("it ends too early");
    const CodePoint point = CodePointAt(pattern_, at_);
    at_ += point.bytes;
    return point.value;
  }

  std::vector<RegexSequence> Alternatives() {
    std::vector<RegexSequence> branches(1);
    literals_.clear();
    while (!AtEnd() && Peek() != ')') {
      if (Take("|")) {
        branches.emplace_back();
        literals_.clear();
      } else {
        branches.back().push_back(Item());
      }
    }
    return branches;
  }

  RegexItem Item() {
    RegexItem item;
    const std::size_t from = at_;
    if (Peek() == '(') {
      item = Group();
    } else if (Take("^")) {
      item.kind = Kind::kLineStart;
    } else if (Take("$")) {
      item.kind = Kind::kLineEnd;
    } else if (Take("\\A")) {
      item.kind = Kind::kTextStart;
    } else if (Take("\\z")) {
      item.kind = Kind::kTextEnd;
    } else {
      item.set = OneSet();
    }
    Repeat(item, from);
    if (item.kind == Kind::kRun) item.set.Finish();
    return item;
  }

  RegexItem Group() {
    RegexItem item;
    const std::size_t from = at_;
    const bool outer_case = ignore_case_;
    item.kind = Kind::kGroup;
    if (Take("(?i:")) {
      ignore_case_ = true;
    } else if (Take("(?!")) {
      item.kind = Kind::kNotAhead;
    } else if (Take("(?=")) {
      item.kind = Kind::kAhead;
    } else if (!Take("(?:")) {
      Take("(");
      if (Peek() == '?') RefuseFrom(from, 4);
    }
    if (++depth_ > kMaxDepth) Refuse(fmt::format("groups nest deeper than {}", kMaxDepth));
    item.branches = Alternatives();
    if (!Take(")")) Refuse("a ( without its )");
    --depth_;
    ignore_case_ = outer_case;
    literals_.clear();
    return item;
  }

  // A single character or a class of them.
  CharSet OneSet() {
    CharSet set;
    const std::size_t from = at_;
    if (Take("[")) return Class();
    if (Take(".")) {
      set.AddRange('\n', '\n');
      set.Negate();
    } else if (Peek() == '\\') {
      Escape(set);
    } else {
      const char32_t c = TakeChar();
      if (c < 0x80 && std::string_view("*+?{}]").find(static_cast<char>(c)) != std::string::npos)
        RefuseFrom(from, 1);
      AddLiteral(set, c);
    }
    return set;
  }

  // Adds to `set` what a backslash begins; gives the character, where it is a single one.
  std::optional<char32_t> Escape(CharSet& set) {
    const std::size_t from = at_;
    TakeChar();
    const char32_t c = TakeChar();
    if (c == 's') return set.AddSpace(), std::nullopt;
    if (c == 'S') return set.AddOtherThanSpace(), std::nullopt;
    if (c == 'd') return set.AddCategories(*CategoriesNamed("Nd")), std::nullopt;
    if (c == 'D') return set.AddCategories(~*CategoriesNamed("Nd")), std::nullopt;
    if (c == 'p' || c == 'P') return Property(set, from, c == 'P'), std::nullopt;
    const char32_t literal = EscapedChar(c, from);
    AddLiteral(set, literal);
    return literal;
  }

  char32_t EscapedChar(char32_t c, std::size_t from) {
    if (c == 'n') return '\n';
    if (c == 'r') return '\r';
    if (c == 't') return '\t';
    if (c == 'f') return '\f';
    if (c == 'v') return '\v';
    const bool is_letter = Lower(c) >= 'a' && Lower(c) <= 'z';
    if (is_letter || (c >= '0' && c <= '9') || c >= 0x80) RefuseFrom(from, at_ - from);
    return c;
  }

  // {L} or {^L}, behind \p or \P.
  void Property(CharSet& set, std::size_t from, bool negated) {
    const std::size_t end = pattern_.find('}', at_);
    if (Peek() != '{' || end == std::string_view::npos) RefuseFrom(from, 2);
    std::string_view name = pattern_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      negated = !negated;
    }
    const std::optional<CategorySet> categories = CategoriesNamed(name);
    if (!categories) RefuseFrom(from, at_ - from);
    if (ignore_case_) Refuse("\\p{...} where case is ignored");
    set.AddCategories(negated ? ~*categories : *categories);
  }

  // A character as the pattern writes it; in both cases where case is ignored.
  void AddLiteral(CharSet& set, char32_t c) {
    set.AddRange(c, c);
    if (!ignore_case_) return;
    if (c >= 0x80) Refuse("a character beyond ASCII where case is ignored");
    literals_ += static_cast<char>(Lower(c));
    for (const std::string_view pair : kFoldedPairs) {
      if (literals_.ends_with(pair)) Refuse(fmt::format("\"{}\" where case is ignored", pair));
    }
    const char32_t lower = Lower(c);
    if (lower < 'a' || lower > 'z') return;
    set.AddRange(lower, lower);
    set.AddRange(lower - 'a' + 'A', lower - 'a' + 'A');
    if (lower == 's') set.AddRange(0x17F, 0x17F);    // the long s
    if (lower == 'k') set.AddRange(0x212A, 0x212A);  // the sign for kelvin
  }

  // Reads on behind the [.
  CharSet Class() {
    CharSet set;
    const bool negated = Take("^");
    if (Peek() == ']') Refuse("an empty [...]");
    while (!Take("]")) {
      literals_.clear();
      const std::size_t from = at_;
      if (Peek() == '[' || pattern_.substr(at_).starts_with("&&")) RefuseFrom(from, 2);
      CharSet single;
      std::optional<char32_t> first;
      if (Peek() == '\\') {
        first = Escape(single);
      } else {
        first = TakeChar();
        AddLiteral(single, *first);
      }
      const bool is_range = Peek() == '-' && pattern_.substr(at_, 2) != "-]";
      if (is_range) {
        AddRange(set, first, from);
      } else {
        set.Add(single);
      }
    }
    literals_.clear();
    if (negated) set.Negate();
    return set;
  }

  // first - last, at the hyphen.
  void AddRange(CharSet& set, std::optional<char32_t> first, std::size_t from) {
    Take("-");
    CharSet unused;
    std::optional<char32_t> last;
    if (Peek() == '\\') {
      last = Escape(unused);
    } else if (Peek() != '[') {
      last = TakeChar();
    }
    if (!first || !last || *last < *first || ignore_case_) RefuseFrom(from, at_ - from);
    set.AddRange(*first, *last);
  }

  // *, +, ?, {n}, {n,}, {n,m} and their possessive forms.
  void Repeat(RegexItem& item, std::size_t from) {
    const bool is_interval = Peek() == '{';
    if (Take("*")) {
      item.min = 0;
      item.max = RegexItem::kNoLimit;
    } else if (Take("+")) {
      item.max = RegexItem::kNoLimit;
    } else if (Take("?")) {
      item.min = 0;
    } else if (is_interval) {
      Interval(item);
    } else {
      return;
    }
    const bool repeats = item.max != 1;
    if (item.kind != Kind::kRun && (item.kind != Kind::kGroup || repeats))
      RefuseFrom(from, at_ - from);
    literals_.clear();
    if (Take("+")) MakePossessive(item, is_interval, from);
    if (std::string_view("*+?{").find(Peek()) != std::string_view::npos && !AtEnd())
      RefuseFrom(from, at_ + 1 - from);
  }

  // The + behind an interval repeats it, which is no limit where it begins at 1 or less.
  void MakePossessive(RegexItem& item, bool is_interval, std::size_t from) {
    if (item.kind != Kind::kRun || (is_interval && item.min > 1)) RefuseFrom(from, at_ - from);
    if (is_interval) {
      item.max = RegexItem::kNoLimit;
    } else {
      item.possessive = true;
    }
  }

  void Interval(RegexItem& item) {
    const std::size_t from = at_;
    Take("{");
    const std::optional<uint32_t> min = Count();
    item.min = item.max = min.value_or(0);
    bool closed = false;
    if (Take(",")) {
      const std::optional<uint32_t> max = Count();
      item.max = max.value_or(RegexItem::kNoLimit);
      closed = min || max;
    } else {
      closed = min.has_value();
    }
    if (!closed || !Take("}") || item.max < item.min || item.max == 0)
      RefuseFrom(from, at_ + 1 - from);
  }

  std::optional<uint32_t> Count() {
    std::optional<uint32_t> count;
    while (Peek() >= '0' && Peek() <= '9') {
      count = count.value_or(0) * 10 + static_cast<uint32_t>(TakeChar() - '0');
      if (*count > kMaxCount) Refuse(fmt::format("a count over {}", kMaxCount));
    }
    return count;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool ignore_case_ = false;
  std::string literals_;  // the last ones in a row, where case is ignored
};

}  // namespace

std::vector<RegexSequence> ParseRegex(std::string_view pattern) { return Parser(pattern).Whole(); }

}  // namespace spillway
