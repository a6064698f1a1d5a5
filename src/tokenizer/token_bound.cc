#include "src/tokenizer/token_bound.h"

#include <algorithm>
#include <string>
#include <variant>

#include "src/tokenizer/bpe_tokenizer.h"
#include "src/tokenizer/byte_alphabet.h"

namespace spillway {
namespace {

// Effect of a normalizer's step on the bytes of a text.
enum class Effect { kKeepsAll, kKeepsAscii, kLoses };

Effect EffectOf(const NormalizerStep& step) {
  if (std::holds_alternative<PrependStep>(step)) return Effect::kKeepsAll;
  if (const auto* replace = std::get_if<ReplaceStep>(&step))
    return replace->by.size() >= replace->what.size() ? Effect::kKeepsAll : Effect::kLoses;
  const bool keeps_ascii = std::holds_alternative<FormStep>(step) ||
                           std::holds_alternative<LowerCaseStep>(step) ||
                           std::holds_alternative<StripAccentsStep>(step);
  return keeps_ascii ? Effect::kKeepsAscii : Effect::kLoses;
}

bool Has(const std::vector<NormalizerStep>& steps, Effect effect) {
  return std::ranges::any_of(steps, [&](const auto& step) { return EffectOf(step) == effect; });
}

// A replacement may make something else of ASCII characters, which forms then may compose.
bool KeepsText(const std::vector<NormalizerStep>& steps) {
  const bool replaces = std::ranges::any_of(
      steps, [](const auto& step) { return std::holds_alternative<ReplaceStep>(step); });
  return !Has(steps, Effect::kLoses) && !(replaces && Has(steps, Effect::kKeepsAscii));
}

// Nothing is left between the matches of the built-in patterns.
bool Removes(const SplitStep& split) {
  const bool matches_all = std::holds_alternative<SplitPattern>(split.target);
  return split.behavior == SplitBehavior::kRemoved && !(split.inverted && matches_all);
}

bool KeepsText(const std::vector<PreTokenizerStep>& steps) {
  return std::ranges::none_of(steps, [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return std::holds_alternative<WordsStep>(step) || (split != nullptr && Removes(*split));
  });
}

// True where each byte has a token to fall back on.
bool HasAllBytes(const BpeParts& parts) {
  if (parts.model.has_byte_tokens()) return true;
  if (std::ranges::none_of(parts.pre_tokenizer, [](const PreTokenizerStep& step) {
        return std::holds_alternative<ByteLevelStep>(step);
      }))
    return false;
  for (int byte = 0; byte < 256; ++byte) {
    const char one = static_cast<char>(byte);
    std::string letter;
    AppendInByteAlphabet({&one, 1}, letter);
    if (!parts.model.Find(letter)) return false;
  }
  return true;
}

bool KeepsText(const std::vector<AddedToken>& tokens) {
  return std::ranges::none_of(tokens,
                              [](const AddedToken& token) { return token.lstrip || token.rstrip; });
}

}  // namespace

TokenBound::TokenBound(const BpeParts& parts) {
  if (!KeepsText(parts.normalizer) || !KeepsText(parts.pre_tokenizer) ||
      !KeepsText(parts.added_tokens) || !HasAllBytes(parts))
    return;
  counts_ascii_ = Has(parts.normalizer, Effect::kKeepsAscii);
  // A byte of the text is a byte or more of its token as the vocabulary spells it.
  for (const auto& [text, id] : parts.model.vocabulary())
    most_bytes_ = std::max(most_bytes_, text.size());
  for (const AddedToken& token : parts.added_tokens) {
    const std::size_t looked_for = Normalize(parts.normalizer, token.content).size();
    most_bytes_ = std::max({most_bytes_, token.content.size(), looked_for});
  }
}

int64_t TokenBound::LeastTokens(std::string_view utf8) const {
  if (most_bytes_ == 0) return 0;
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  const std::size_t counted =
      counts_ascii_ ? static_cast<std::size_t>(std::ranges::count_if(utf8, is_ascii)) : utf8.size();
  return static_cast<int64_t>((counted + most_bytes_ - 1) / most_bytes_);
}

}  // namespace spillway
