#include <fmt/format.h>

#include <array>
#include <utility>

#include "src/tokenizer/json_part.h"
#include "src/tokenizer/json_parts.h"
#include "src/unicode/char_class.h"

namespace spillway {
namespace {

constexpr std::array kForms = {
    std::pair{"NFC", UnicodeForm::kNfc}, std::pair{"NFD", UnicodeForm::kNfd},
    std::pair{"NFKC", UnicodeForm::kNfkc}, std::pair{"NFKD", UnicodeForm::kNfkd}};

constexpr std::array kBehaviors = {
    std::pair{"Removed", SplitBehavior::kRemoved}, std::pair{"Isolated", SplitBehavior::kIsolated},
    std::pair{"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    std::pair{"MergedWithNext", SplitBehavior::kMergedWithNext},
    std::pair{"Contiguous", SplitBehavior::kContiguous}};

// Published chains have a handful.
constexpr std::size_t kMaxSteps = 64;

template <typename Step>
void CheckChain(const JsonNode& part, const char* what, const std::vector<Step>& steps) {
  if (steps.size() > kMaxSteps)
    part.Refuse(fmt::format("the {} has more than {} steps", what, kMaxSteps));
}

bool HasMember(const JsonNode& part, const char* key) {
  return part.value().is_object() && part.value().contains(key);
}

NormalizerStep ReadReplaceNormalizer(const JsonNode& part) {
  const JsonNode pattern = part.Member("pattern");
  if (!HasMember(pattern, "Regex")) return ReadReplace(part, "normalizer");
  return ReplaceMatchesStep{ReadRegex(pattern, "normalizer"), TextMember(part, "content")};
}

void AddNormalizer(const JsonNode& part, std::vector<NormalizerStep>& out) {
  const std::string type = PartType(part, "normalizer");
  for (const auto& [name, form] : kForms) {
    if (type == name) return void(out.emplace_back(FormStep{form}));
  }
  if (type == "Sequence") {
    for (const JsonNode& inner : part.Member("normalizers").Items()) AddNormalizer(inner, out);
  } else if (type == "Prepend") {
    out.emplace_back(PrependStep{TextMember(part, "prepend")});
  } else if (type == "Replace") {
    out.emplace_back(ReadReplaceNormalizer(part));
  } else if (type == "Strip") {
    out.emplace_back(
        StripStep{part.Boolean("strip_left", true), part.Boolean("strip_right", true)});
  } else if (type == "Lowercase") {
    out.emplace_back(LowerCaseStep{});
  } else if (type == "StripAccents") {
    out.emplace_back(StripAccentsStep{});
  } else {
    RefusePart(part, "normalizer", type);
  }
}

SplitBehavior ReadBehavior(const JsonNode& part) {
  const std::string behavior = part.Text("behavior", "Isolated");
  for (const auto& [name, value] : kBehaviors) {
    if (behavior == name) return value;
  }
  RefusePart(part, "behavior", behavior);
}

SplitTarget ReadSplitTarget(const JsonNode& part) {
  const JsonNode pattern = part.Member("pattern");
  if (HasMember(pattern, "Regex")) {
    if (const auto known = FindSplitPattern(TextMember(pattern, "Regex"))) return *known;
    return ReadRegex(pattern, "pre-tokenizer");
  }
  std::string text = TextMember(pattern, "String");
  if (text.empty()) RefusePart(part, "pre-tokenizer", "Split at an empty text");
  return text;
}

void AddPreTokenizer(const JsonNode& part, std::vector<PreTokenizerStep>& out) {
  const std::string type = PartType(part, "pre-tokenizer");
  const auto add_split = [&](SplitTarget target, SplitBehavior behavior) {
    out.emplace_back(SplitStep{std::move(target), behavior});
  };
  if (type == "Sequence") {
    for (const JsonNode& inner : part.Member("pretokenizers").Items()) AddPreTokenizer(inner, out);
  } else if (type == "ByteLevel") {
    out.emplace_back(
        ByteLevelStep{part.Boolean("add_prefix_space", true), part.Boolean("use_regex", true)});
  } else if (type == "Split") {
    out.emplace_back(
        SplitStep{ReadSplitTarget(part), ReadBehavior(part), part.Boolean("invert", false)});
  } else if (type == "Digits") {
    out.emplace_back(DigitsStep{part.Boolean("individual_digits", false)});
  } else if (type == "Metaspace") {
    out.emplace_back(ReadMetaspace(part));
  } else if (type == "Punctuation") {
    add_split(&IsPunctuation, ReadBehavior(part));
  } else if (type == "Whitespace") {
    out.emplace_back(WordsStep{});
  } else if (type == "WhitespaceSplit") {
    add_split(&IsStripChar, SplitBehavior::kRemoved);
  } else if (type == "BertPreTokenizer") {
    add_split(&IsStripChar, SplitBehavior::kRemoved);
    add_split(&IsPunctuation, SplitBehavior::kIsolated);
  } else if (type == "CharDelimiterSplit") {
    add_split(TextMember(part, "delimiter"), SplitBehavior::kRemoved);
  } else {
    RefusePart(part, "pre-tokenizer", type);
  }
}

}  // namespace

std::vector<NormalizerStep> ReadNormalizer(const JsonNode& part) {
  std::vector<NormalizerStep> steps;
  if (!part.value().is_null()) AddNormalizer(part, steps);
  CheckChain(part, "normalizer", steps);
  return steps;
}

std::vector<PreTokenizerStep> ReadPreTokenizer(const JsonNode& part) {
  std::vector<PreTokenizerStep> steps;
  if (!part.value().is_null()) AddPreTokenizer(part, steps);
  CheckChain(part, "pre-tokenizer", steps);
  return steps;
}

}  // namespace spillway
