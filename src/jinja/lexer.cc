#include "src/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/jinja/string_literal.h"
#include "src/jinja/values/fault.h"
#include "src/jinja/values/python_text.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

// Bounds how deep an expression can be.
constexpr std::size_t kMaxTagTokens = 4000;

// Longer ones first.
constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

std::string WithUnixNewlines(std::string_view source) {
  std::string out;
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out += source[at];
      continue;
    }
    out += '\n';
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsWord(char32_t c) {
  return c == '_' || (c < 0x80 ? (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
                               : IsAlphabetic(c) || IsDecimal(c));
}

// Length of \s* at the start of `text`.
std::size_t SpaceBytes(std::string_view text) {
  return text.size() - Strip(text, nullptr, Side::kLeft).size();
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    while (at_ < source_.size()) Root();
    tokens_.push_back({TokenKind::kEnd, "", line_});
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }

  void Advance(std::size_t bytes) {
    const std::string_view passed = Rest().substr(0, bytes);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    if (!passed.empty()) after_newline_ = passed.back() == '\n';
    at_ += bytes;
  }

  void Emit(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  [[noreturn]] void Fail(const std::string& what) const { throw Fault(what, line_); }

  bool OpensTag(std::size_t brace) const {
    const char next = brace + 1 < source_.size() ? source_[brace + 1] : ' ';
    return next == '%' || next == '{' || next == '#';
  }

  // Place of the next "{%", "{{" or "{#"; npos: there is none.
  std::size_t NextTag() const {
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string::npos && !OpensTag(tag)) tag = source_.find('{', tag + 1);
    return tag;
  }

  // Text up to the next tag, and the tag.
  void Root() {
    const std::size_t tag = NextTag();
    if (tag == std::string::npos) {
      Emit(TokenKind::kData, std::string(Rest()));
      at_ = source_.size();
      return;
    }
    const std::string_view before = Rest().substr(0, tag - at_);
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const std::string_view kept = KeptBefore(before, sign, source_[tag + 1] == '{');
    if (!kept.empty()) Emit(TokenKind::kData, std::string(kept));
    Advance(before.size());
    const std::size_t bytes = sign == '-' || sign == '+' ? 3 : 2;
    Open(source_[tag + 1], bytes);
  }

  std::string_view KeptBefore(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return Strip(text, nullptr, Side::kRight);
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !after_newline_) return text;
    return Strip(text.substr(begin), nullptr, Side::kLeft).empty() ? text.substr(0, begin) : text;
  }

  void Open(char type, std::size_t bytes) {
    if (type == '#') return Comment(bytes);
    if (type == '%' && Raw(bytes)) return;
    const bool is_variable = type == '{';
    Emit(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    Advance(bytes);
    const std::size_t first = tokens_.size();
    while (!Close(is_variable)) {
      Inside();
      if (tokens_.size() - first > kMaxTagTokens)
        Fail(fmt::format("a tag has more than {} tokens", kMaxTagTokens));
    }
  }

  void Comment(std::size_t bytes) {
    const std::size_t end = source_.find("#}", at_ + bytes);
    if (end == std::string::npos) Fail("a comment is not closed");
    const char sign = end > at_ + bytes ? source_[end - 1] : ' ';
    Advance(end - at_);
    Advance(EndBytes(sign));
  }

  // Bytes of an end tag, with the white space behind it that goes.
  std::size_t EndBytes(char sign) const {
    const std::string_view behind = Rest().substr(2);
    if (sign == '-') return 2 + SpaceBytes(behind);
    return sign != '+' && behind.starts_with('\n') ? 3 : 2;
  }

  // {% raw %} ... {% endraw %}; false where the block is another.
  bool Raw(std::size_t bytes) {
    std::string_view rest = Rest().substr(bytes);
    rest.remove_prefix(SpaceBytes(rest));
    if (!rest.starts_with("raw")) return false;
    rest.remove_prefix(3);
    rest.remove_prefix(SpaceBytes(rest));
    const bool strips = rest.starts_with("-%}");
    if (!strips && !rest.starts_with("%}")) return false;
    rest.remove_prefix(strips ? 3 : 2);
    if (strips) rest.remove_prefix(SpaceBytes(rest));
    Advance(Rest().size() - rest.size());
    EndRaw();
    return true;
  }

  void EndRaw() {
    for (std::size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      std::string_view rest = std::string_view(source_).substr(tag + 2);
      const char sign = rest.empty() ? ' ' : rest.front();
      if (sign == '-' || sign == '+') rest.remove_prefix(1);
      rest.remove_prefix(SpaceBytes(rest));
      if (!rest.starts_with("endraw")) continue;
      rest.remove_prefix(6);
      rest.remove_prefix(SpaceBytes(rest));
      const char end_sign = rest.empty() ? ' ' : rest.front();
      if (end_sign == '-' || end_sign == '+') rest.remove_prefix(1);
      if (!rest.starts_with("%}")) continue;
      const std::string_view kept = KeptBefore(Rest().substr(0, tag - at_), sign, false);
      if (!kept.empty()) Emit(TokenKind::kData, std::string(kept));
      Advance(Rest().size() - rest.size());
      Advance(EndBytes(end_sign));
      return;
    }
    Fail("{% raw %} is not closed");
  }

  // The end of a variable or a block, unless brackets are open.
  bool Close(bool is_variable) {
    if (at_ >= source_.size()) Fail("a tag is not closed");
    if (!brackets_.empty()) return false;
    const char sign = Rest().front();
    const std::size_t sign_bytes = sign == '-' || (sign == '+' && !is_variable) ? 1 : 0;
    if (!Rest().substr(sign_bytes).starts_with(is_variable ? "}}" : "%}")) return false;
    Emit(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    Advance(sign_bytes);
    const char end_sign = sign_bytes == 0 ? ' ' : sign;
    Advance(is_variable && end_sign != '-' ? 2 : EndBytes(end_sign));
    return true;
  }

  void Inside() {
    if (const std::size_t space = SpaceBytes(Rest()); space > 0) return Advance(space);
    const char c = Rest().front();
    if (IsDigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    std::size_t bytes = 0;
    while (at_ + bytes < source_.size()) {
      const CodePoint point = CodePointAt(source_, at_ + bytes);
      if (!IsWord(point.value)) break;
      bytes += point.bytes;
    }
    if (bytes == 0) return Operator();
    Emit(TokenKind::kName, std::string(Rest().substr(0, bytes)));
    Advance(bytes);
  }

  std::size_t DigitBytes(std::size_t from) const {
    std::size_t end = from;
    while (end < source_.size() &&
           (IsDigit(source_[end]) || (source_[end] == '_' && end > from &&
                                      end + 1 < source_.size() && IsDigit(source_[end + 1]))))
      ++end;
    return end - from;
  }

  // Bytes of ".5", "e-3" and both behind the digits of a float; 0: it is an integer.
  std::size_t FractionBytes(std::size_t from) const {
    std::size_t end = from;
    if (end < source_.size() && source_[end] == '.') {
      const std::size_t digits = DigitBytes(end + 1);
      if (digits > 0) end += 1 + digits;
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t at = end + 1;
      if (at < source_.size() && (source_[at] == '+' || source_[at] == '-')) ++at;
      const std::size_t digits = DigitBytes(at);
      if (digits > 0) end = at + digits;
    }
    return end - from;
  }

  void Number() {
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    std::size_t bytes = DigitBytes(at_);
    const std::size_t fraction = after_dot ? 0 : FractionBytes(at_ + bytes);
    if (fraction == 0 && source_[at_] == '0' && bytes > 1)
      Fail("a number begins with 0; leave the 0 out");
    if (fraction == 0 && at_ + bytes < source_.size() &&
        IsWord(CodePointAt(source_, at_ + bytes).value))
      Fail("a number is followed by a letter; hexadecimal and the like are not supported");
    bytes += fraction;
    std::string digits(Rest().substr(0, bytes));
    std::erase(digits, '_');
    Emit(fraction > 0 ? TokenKind::kFloat : TokenKind::kInteger, digits);
    Advance(bytes);
  }

  void String(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) Fail("a string is not closed");
    Emit(TokenKind::kString,
         Unescaped(std::string_view(source_).substr(at_ + 1, end - at_ - 1), line_));
    Advance(end + 1 - at_);
  }

  void Operator() {
    const auto found = std::ranges::find_if(
        kOperators, [this](std::string_view text) { return Rest().starts_with(text); });
    if (found == kOperators.end()) {
      const std::size_t bytes = CodePointAt(source_, at_).bytes;
      Fail(fmt::format("unexpected character '{}'", Rest().substr(0, bytes)));
    }
    Balance(found->front());
    Emit(TokenKind::kOperator, std::string(*found));
    Advance(found->size());
  }

  void Balance(char c) {
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (const std::size_t at = kOpening.find(c); at != std::string_view::npos)
      brackets_ += kClosing[at];
    if (kClosing.find(c) == std::string_view::npos) return;
    if (brackets_.empty()) Fail(fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c)
      Fail(fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool after_newline_ = true;  // what was read last ended a line
  std::string brackets_;       // that are to be closed
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(WithUnixNewlines(source)).Run(); }

std::string Described(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kBlockEnd:
      return "the end of the statement";
    case TokenKind::kVariableEnd:
      return "the end of the print statement";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace spillway::jinja
