#include "src/config/toml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Places of a text that TOML allows any character at.
class QuoteScanner {
 public:
  explicit QuoteScanner(std::string_view text) : text_(text) {}

  // The first byte beyond ASCII that is in no comment and in no quotes, from `at` on; npos: none.
  std::size_t FindBare(std::size_t at) const {
    while (at < text_.size()) {
      const char c = text_[at];
      if (static_cast<unsigned char>(c) >= 128) return at;
      if (c == '#') {
        at = std::min(text_.find('\n', at), text_.size());
      } else if (c == '"' || c == '\'') {
        at = BehindQuotes(at);
      } else {
        ++at;
      }
    }
    return std::string_view::npos;
  }

 private:
  // Quotes of one sort, three or one; a backslash shields what follows it between double ones. One
  // line's end where they are not closed in it.
  std::size_t BehindQuotes(std::size_t at) const {
    const char quote = text_[at];
    const std::string thrice(3, quote);
    const std::string_view close =
        text_.substr(at).starts_with(thrice) ? std::string_view(thrice) : text_.substr(at, 1);
    at += close.size();
    while (at < text_.size() && !text_.substr(at).starts_with(close)) {
      if (text_[at] == '\n' && close.size() == 1) return at;
      at += text_[at] == '\\' && quote == '"' ? 2 : 1;
    }
    return std::min(at + close.size(), text_.size());
  }

  std::string_view text_;
};

}  // namespace

toml::table ParseToml(std::string_view text) {
  const std::size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  const std::size_t bare = QuoteScanner(text).FindBare(begin);
  if (bare == std::string_view::npos) return toml::parse(text);
  const std::string_view before = text.substr(0, bare);
  const auto line = static_cast<toml::source_index>(std::ranges::count(before, '\n') + 1);
  const auto column = static_cast<toml::source_index>(bare - (before.rfind('\n') + 1) + 1);
  throw toml::parse_error("a character beyond ASCII outside of quotes",
                          toml::source_position{line, column});
}

std::string ReadTomlText(const std::string& path, std::string_view flag) {
  constexpr std::streamoff kMaxBytes = 1 << 20;
  std::error_code ignored;
  std::ifstream in;
  // A pipe would be waited for.
  if (std::filesystem::is_regular_file(path, ignored))
    in.open(path, std::ios::binary | std::ios::ate);
  if (!in.is_open() || in.tellg() > kMaxBytes) {
    throw Error(ErrorCode::kFlag, fmt::format("{} {}: not a readable TOML file of at most 1 MiB",
                                              flag, Printable(path)));
  }
  in.seekg(0);
  std::stringstream text;
  text << in.rdbuf();
  std::string read = text.str();
  if (read.find('\0') != std::string::npos)
    throw Error(ErrorCode::kFlag, fmt::format("{} {}: holds a NUL byte, which no TOML file has",
                                              flag, Printable(path)));
  return read;
}

std::optional<std::string> TomlScalar(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return std::nullopt;
}

}  // namespace spillway
