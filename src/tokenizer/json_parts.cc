#include "src/tokenizer/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/utf8.h"

namespace spillway {
namespace {

[[noreturn]] void RefusePart(const JsonNode& in, const char* what, std::string_view part) {
  in.Refuse(fmt::format("the {} \"{}\" is not supported", what, Printable(part)),
            "convert the model's tokenizer to byte-level BPE or SentencePiece");
}

std::string TextMember(const JsonNode& part, const char* key) { return part.Member(key).Text(); }

// The member "type"; `what` is for messages.
std::string PartType(const JsonNode& part, const char* what) {
  if (!part.value().is_object()) part.Refuse(fmt::format("a {} is not an object", what));
  return TextMember(part, "type");
}

// {"pattern": {"String": what}, "content": by}; a regular expression there is refused.
ReplaceStep ReadReplace(const JsonNode& part, const char* what) {
  const JsonNode pattern = part.Member("pattern");
  if (!pattern.value().is_object() || !pattern.value().contains("String"))
    RefusePart(part, what, "Replace with a regular expression");
  ReplaceStep step{TextMember(pattern, "String"), TextMember(part, "content")};
  if (step.what.empty()) RefusePart(part, what, "Replace of an empty text");
  return step;
}

void AddNormalizer(const JsonNode& part, std::vector<NormalizerStep>& out) {
  const std::string type = PartType(part, "normalizer");
  if (type == "Sequence") {
    for (const JsonNode& inner : part.Member("normalizers").Items()) AddNormalizer(inner, out);
  } else if (type == "NFC") {
    out.emplace_back(NfcStep{});
  } else if (type == "Prepend") {
    out.emplace_back(PrependStep{TextMember(part, "prepend")});
  } else if (type == "Replace") {
    out.emplace_back(ReadReplace(part, "normalizer"));
  } else {
    RefusePart(part, "normalizer", type);
  }
}

// Keeping the matches apart, or taking away what is between them: the same, as known patterns leave
// nothing between.
SplitStep ReadSplit(const JsonNode& part) {
  const JsonNode pattern = part.Member("pattern");
  const std::string behavior = TextMember(part, "behavior");
  const bool invert = part.Boolean("invert", false);
  if ((behavior != "Isolated" || invert) && (behavior != "Removed" || !invert)) {
    RefusePart(part, "pre-tokenizer", "Split with behavior " + behavior);
  }
  if (!pattern.value().is_object() || !pattern.value().contains("Regex"))
    RefusePart(part, "pre-tokenizer", "Split at a text");
  const std::string regex = TextMember(pattern, "Regex");
  const auto known = FindSplitPattern(regex);
  if (!known) RefusePart(part, "pre-tokenizer pattern", regex);
  return {*known};
}

char32_t ReadReplacement(const JsonNode& part) {
  const std::string text = part.Text("replacement", "\xE2\x96\x81");
  if (text.empty() || CodePointAt(text, 0).bytes != text.size())
    part.Refuse("\"replacement\" is not one character");
  return CodePointAt(text, 0).value;
}

MetaspaceStep ReadMetaspace(const JsonNode& part) {
  using Prepend = MetaspaceStep::Prepend;
  MetaspaceStep step{ReadReplacement(part), Prepend::kAlways, part.Boolean("split", true)};
  // Files written before "prepend_scheme" existed say it with "add_prefix_space".
  const std::string fallback = part.Boolean("add_prefix_space", true) ? "always" : "never";
  const std::string scheme = part.Text("prepend_scheme", fallback);
  if (scheme == "never") step.prepend = Prepend::kNever;
  if (scheme == "first") step.prepend = Prepend::kFirst;
  if (scheme != "never" && scheme != "first" && scheme != "always")
    RefusePart(part, "prepend_scheme", scheme);
  return step;
}

void AddPreTokenizer(const JsonNode& part, std::vector<PreTokenizerStep>& out) {
  const std::string type = PartType(part, "pre-tokenizer");
  if (type == "Sequence") {
    for (const JsonNode& inner : part.Member("pretokenizers").Items()) AddPreTokenizer(inner, out);
  } else if (type == "ByteLevel") {
    out.emplace_back(
        ByteLevelStep{part.Boolean("add_prefix_space", true), part.Boolean("use_regex", true)});
  } else if (type == "Split") {
    out.emplace_back(ReadSplit(part));
  } else if (type == "Digits") {
    out.emplace_back(DigitsStep{part.Boolean("individual_digits", false)});
  } else if (type == "Metaspace") {
    out.emplace_back(ReadMetaspace(part));
  } else {
    RefusePart(part, "pre-tokenizer", type);
  }
}

// {"special_tokens": {"<s>": {"ids": [1]}}}: the ids of the special token `name`.
std::vector<TokenId> SpecialTokenIds(const JsonNode& template_part, const std::string& name) {
  const JsonNode all = template_part.Member("special_tokens");
  const std::optional<JsonNode> named = all.Find(name);
  if (!named) all.Refuse(fmt::format("the template's token \"{}\" has no ids", Printable(name)));
  std::vector<TokenId> ids;
  for (const JsonNode& id : named->Member("ids").Items())
    ids.push_back(JsonTokenId(id.value(), name, id));
  return ids;
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
Frame ReadTemplate(const JsonNode& part) {
  Frame frame;
  int num_texts = 0;
  for (const JsonNode& item : part.Member("single").Items()) {
    if (item.value().is_object() && item.value().contains("Sequence")) {
      ++num_texts;
      continue;
    }
    if (!item.value().is_object() || !item.value().contains("SpecialToken"))
      RefusePart(part, "post-processor", "TemplateProcessing with this \"single\"");
    const auto ids = SpecialTokenIds(part, TextMember(item.Member("SpecialToken"), "id"));
    std::vector<TokenId>& side = num_texts == 0 ? frame.start : frame.end;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (num_texts != 1)
    RefusePart(part, "post-processor",
               fmt::format("TemplateProcessing with the text {} times", num_texts));
  return frame;
}

void AddDecoder(const JsonNode& part, std::vector<JsonNode>& out) {
  if (PartType(part, "decoder") != "Sequence") {
    out.push_back(part);
    return;
  }
  for (const JsonNode& inner : part.Member("decoders").Items()) AddDecoder(inner, out);
}

std::size_t CountMember(const JsonNode& part, const char* key) {
  const nlohmann::json& member = part.Member(key).value();
  if (!member.is_number_unsigned() || member.get<uint64_t>() > 1024)
    part.Refuse(fmt::format("\"{}\" is not a small number", key));
  return member.get<std::size_t>();
}

void ReadStrip(const JsonNode& part, Decoder& decoder) {
  decoder.strip = TextMember(part, "content");
  decoder.strip_start = CountMember(part, "start");
  if (CountMember(part, "stop") != 0) RefusePart(part, "decoder", "Strip at the end");
  if (decoder.strip.empty()) decoder.strip_start = 0;
}

void ReadMetaspaceDecoder(const JsonNode& part, Decoder& decoder) {
  const MetaspaceStep step = ReadMetaspace(part);
  std::string replacement;
  AppendCodePoint(step.replacement, replacement);
  decoder.replace = ReplaceStep{replacement, " "};
  if (step.prepend != MetaspaceStep::Prepend::kNever) decoder.drop_in_first = replacement;
}

}  // namespace

std::vector<NormalizerStep> ReadNormalizer(const JsonNode& part) {
  std::vector<NormalizerStep> steps;
  if (!part.value().is_null()) AddNormalizer(part, steps);
  return steps;
}

std::vector<PreTokenizerStep> ReadPreTokenizer(const JsonNode& part) {
  std::vector<PreTokenizerStep> steps;
  if (!part.value().is_null()) AddPreTokenizer(part, steps);
  return steps;
}

Frame ReadPostProcessor(const JsonNode& part) {
  if (part.value().is_null()) return {};
  const std::string type = PartType(part, "post-processor");
  if (type == "ByteLevel") return {};  // moves offsets, which we do not have
  if (type == "TemplateProcessing") return ReadTemplate(part);
  if (type != "Sequence") RefusePart(part, "post-processor", type);
  Frame frame;
  for (const JsonNode& inner : part.Member("processors").Items()) {
    const Frame outer = ReadPostProcessor(inner);
    frame.start.insert(frame.start.begin(), outer.start.begin(), outer.start.end());
    frame.end.insert(frame.end.end(), outer.end.begin(), outer.end.end());
  }
  return frame;
}

Decoder ReadDecoder(const JsonNode& part) {
  if (part.value().is_null()) RefusePart(part, "decoder", "null");
  std::vector<JsonNode> steps;
  AddDecoder(part, steps);
  Decoder decoder;
  // The steps a decoder may have, each at most once, in this order.
  const std::vector<std::string> order = {"ByteLevel",    "Metaspace", "Replace",
                                          "ByteFallback", "Fuse",      "Strip"};
  auto next = order.begin();
  for (const JsonNode& step : steps) {
    const std::string type = PartType(step, "decoder");
    const auto place = std::find(next, order.end(), type);
    if (place == order.end()) RefusePart(part, "decoder", type);
    next = place + 1;
    if (type == "ByteLevel") decoder.byte_level = true;
    if (type == "Metaspace") ReadMetaspaceDecoder(step, decoder);
    if (type == "Replace") decoder.replace = ReadReplace(step, "decoder");
    if (type == "ByteFallback") decoder.byte_fallback = true;
    if (type == "Strip") ReadStrip(step, decoder);
  }
  return decoder;
}

}  // namespace spillway
