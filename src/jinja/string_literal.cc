#include "src/jinja/string_literal.h"

#include <fmt/format.h>

#include <charconv>

#include "src/jinja/values/fault.h"
#include "src/unicode/utf8.h"

namespace spillway::jinja {
namespace {

class Escapes {
 public:
  Escapes(std::string_view text, int line) : text_(text), line_(line) {}

  std::string Run() {
    while (!text_.empty()) {
      if (text_.front() != '\\' || text_.size() == 1) {
        out_ += text_.front();
        text_.remove_prefix(1);
        continue;
      }
      const char letter = text_[1];
      text_.remove_prefix(2);
      Escape(letter);
    }
    return std::move(out_);
  }

 private:
  void Escape(char letter) {
    constexpr std::string_view kLetters = "ntrabfv\\'\"";
    constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
    if (const std::size_t at = kLetters.find(letter); at != std::string_view::npos) {
      out_ += kMeanings[at];
      return;
    }
    if (letter == '\n') return;
    if (letter == 'x') return Number(2, 16);
    if (letter == 'u') return Number(4, 16);
    if (letter == 'U') return Number(8, 16);
    if (letter == 'N') throw Fault("a string has \\N{...}, which is not supported", line_);
    if (letter >= '0' && letter <= '7') return Octal(letter);
    out_ += '\\';
    out_ += letter;
  }

  void Octal(char first) {
    unsigned code = static_cast<unsigned>(first - '0');
    for (int i = 0; i < 2 && !text_.empty() && text_.front() >= '0' && text_.front() <= '7'; ++i) {
      code = code * 8 + static_cast<unsigned>(text_.front() - '0');
      text_.remove_prefix(1);
    }
    AppendCodePoint(code, out_);
  }

  void Number(std::size_t num_digits, int base) {
    unsigned code = 0;
    const std::string_view digits = text_.substr(0, num_digits);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
    if (digits.size() < num_digits || read.ptr != digits.data() + digits.size())
      throw Fault("a string has a malformed \\x, \\u or \\U", line_);
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
      throw Fault(fmt::format("a string has \\u{:x}, which is no character", code), line_);
    AppendCodePoint(code, out_);
    text_.remove_prefix(num_digits);
  }

  std::string_view text_;
  int line_;
  std::string out_;
};

}  // namespace

std::string Unescaped(std::string_view text, int line) { return Escapes(text, line).Run(); }

}  // namespace spillway::jinja
