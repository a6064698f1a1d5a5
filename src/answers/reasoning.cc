#include "src/answers/reasoning.h"

namespace spillway {
namespace {

constexpr std::string_view kOpening = "<think>";
constexpr std::string_view kClosing = "</think>";

std::string_view WithoutLineEnds(std::string_view text) {
  const std::size_t begin = text.find_first_not_of("\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of("\r\n") + 1 - begin);
}

}  // namespace

SplitText SplitReasoning(std::string_view text, bool is_open) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool opens = first != std::string_view::npos && text.substr(first).starts_with(kOpening);
  if (!opens && !is_open) return {std::string(text), std::nullopt};
  std::string_view rest = opens ? text.substr(first + kOpening.size()) : text;
  const std::size_t end = rest.find(kClosing);
  if (end == std::string_view::npos) return {"", std::string(WithoutLineEnds(rest))};
  std::string_view content = rest.substr(end + kClosing.size());
  const std::size_t begin = content.find_first_not_of("\r\n");
  content = begin == std::string_view::npos ? std::string_view() : content.substr(begin);
  return {std::string(content), std::string(WithoutLineEnds(rest.substr(0, end)))};
}

}  // namespace spillway
