#include "src/jinja/values/number_text.h"

#include <charconv>
#include <string>

#include "src/jinja/values/python_text.h"

namespace spillway::jinja {

std::optional<Integer> ReadInteger(std::string_view text) {
  text = Strip(text, nullptr, Side::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  constexpr std::size_t kMaxDigits = 37;
  if (text.size() > 2 * kMaxDigits) return std::nullopt;
  std::string digits;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool joins = text[at] == '_' && at > 0 && at + 1 < text.size() && text[at - 1] != '_';
    if (!joins) digits += text[at];
  }
  if (digits.empty() || digits.size() > kMaxDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  Integer out = 0;
  for (const char digit : digits) out = out * 10 + (digit - '0');
  return negative ? -out : out;
}

std::optional<double> ReadReal(std::string_view text) {
  SpendOnText(text.size());
  text = Strip(text, nullptr, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  double out = 0.0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return out;
}

}  // namespace spillway::jinja
