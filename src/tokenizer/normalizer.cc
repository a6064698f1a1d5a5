#include "src/tokenizer/normalizer.h"

#include "src/tokenizer/unicode.h"

namespace spillway {
namespace {

std::string Apply(const NfcStep&, std::string_view text) { return ComposeNfc(text); }

std::string Apply(const PrependStep& step, std::string_view text) {
  return text.empty() ? std::string() : step.text + std::string(text);
}

std::string Apply(const ReplaceStep& step, std::string_view text) { return ReplaceAll(text, step); }

}  // namespace

std::string Normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    out = std::visit([&](const auto& kind) { return Apply(kind, out); }, step);
  }
  return out;
}

std::string ReplaceAll(std::string_view text, const ReplaceStep& replace) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = text.find(replace.what, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) break;
    out += replace.by;
    at = found + replace.what.size();
  }
  return out;
}

}  // namespace spillway
