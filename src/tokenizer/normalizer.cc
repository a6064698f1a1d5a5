#include "src/tokenizer/normalizer.h"

#include <fmt/format.h>

#include "spillway/error.h"
#include "src/unicode/char_class.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

std::string Apply(const FormStep& step, std::string_view text, std::size_t) {
  return ToForm(step.form, text);
}

std::string Apply(const PrependStep& step, std::string_view text, std::size_t) {
  return text.empty() ? std::string() : step.text + std::string(text);
}

std::string Apply(const ReplaceStep& step, std::string_view text, std::size_t most) {
  return ReplaceAll(text, step, most);
}

std::string Apply(const ReplaceMatchesStep& step, std::string_view text, std::size_t most) {
  std::string out;
  std::size_t done = 0;
  RegexSearch search(step.what, text);
  while (const auto match = search.Next()) {
    CheckGrowth(out.size(), most);
    out.append(text.substr(done, match->begin - done)).append(step.by);
    done = match->end;
  }
  return out.append(text.substr(done));
}

std::string Apply(const StripStep& step, std::string_view text, std::size_t) {
  while (step.left && !text.empty()) {
    const CodePoint first = CodePointAt(text, 0);
    if (!IsStripChar(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  while (step.right && !text.empty()) {
    const CodePoint last = CodePointBefore(text, text.size());
    if (!IsStripChar(last.value)) break;
    text.remove_suffix(last.bytes);
  }
  return std::string(text);
}

std::string Apply(const LowerCaseStep&, std::string_view text, std::size_t) {
  return ToLowerCase(text);
}

std::string Apply(const StripAccentsStep&, std::string_view text, std::size_t) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = CodePointAt(text, at);
    if (!IsAccent(point.value)) out += text.substr(at, point.bytes);
    at += point.bytes;
  }
  return out;
}

}  // namespace

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  const std::size_t most = MostBytesOf(text);
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    out = std::visit([&](const auto& kind) { return Apply(kind, out, most); }, step);
    CheckGrowth(out.size(), most);
  }
  return out;
}

void CheckGrowth(std::size_t bytes, std::size_t most) {
  if (bytes <= most) return;
  throw Error(
      ErrorCode::kTokenizer,
      fmt::format("tokenizer.json: its steps make over {} bytes of a text; use the file from "
                  "the model's own folder",
                  most));
}

std::string ReplaceAll(std::string_view text, const ReplaceStep& replace, std::size_t most) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(replace.what, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) break;
    out += replace.by;
    CheckGrowth(out.size(), most);
    at = found + replace.what.size();
  }
  return out;
}

}  // namespace spillway
