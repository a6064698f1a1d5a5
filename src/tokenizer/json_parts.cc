#include "src/tokenizer/json_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/utf8.h"

namespace spillway {
namespace {

using nlohmann::json;
using Path = std::filesystem::path;

[[noreturn]] void RefusePart(const Path& file, const char* what, std::string_view part) {
  RefuseTokenizer(file, fmt::format("the {} \"{}\" is not supported", what, Printable(part)),
                  "convert the model's tokenizer to byte-level BPE or SentencePiece");
}

const json& Member(const json& part, const char* key, const Path& file) {
  const auto member = part.find(key);
  if (member == part.end()) RefuseTokenizer(file, fmt::format("a part has no \"{}\"", key));
  return *member;
}

const json& ArrayMember(const json& part, const char* key, const Path& file) {
  const json& member = Member(part, key, file);
  if (!member.is_array()) RefuseTokenizer(file, fmt::format("\"{}\" is not a list", key));
  return member;
}

std::string TextMember(const json& part, const char* key, const Path& file) {
  const json& member = Member(part, key, file);
  if (!member.is_string()) RefuseTokenizer(file, fmt::format("\"{}\" is not a string", key));
  return member.get<std::string>();
}

// {"pattern": {"String": what}, "content": by}; a regular expression there is refused.
ReplaceStep ReadReplace(const json& part, const char* what, const Path& file) {
  const json& pattern = Member(part, "pattern", file);
  if (!pattern.is_object() || !pattern.contains("String"))
    RefusePart(file, what, "Replace with a regular expression");
  ReplaceStep step{TextMember(pattern, "String", file), TextMember(part, "content", file)};
  if (step.what.empty()) RefusePart(file, what, "Replace of an empty text");
  return step;
}

void AddNormalizer(const json& part, const Path& file, std::vector<NormalizerStep>& out) {
  const std::string type = PartType(part, "normalizer", file);
  if (type == "Sequence") {
    for (const json& inner : ArrayMember(part, "normalizers", file))
      AddNormalizer(inner, file, out);
  } else if (type == "NFC") {
    out.emplace_back(NfcStep{});
  } else if (type == "Prepend") {
    out.emplace_back(PrependStep{TextMember(part, "prepend", file)});
  } else if (type == "Replace") {
    out.emplace_back(ReadReplace(part, "normalizer", file));
  } else {
    RefusePart(file, "normalizer", type);
  }
}

// Keeping the matches apart, or taking away what is between them: the same, as known patterns leave
// nothing between.
SplitStep ReadSplit(const json& part, const Path& file) {
  const json& pattern = Member(part, "pattern", file);
  const std::string behavior = TextMember(part, "behavior", file);
  const bool invert = JsonBool(part, "invert", false, file);
  if ((behavior != "Isolated" || invert) && (behavior != "Removed" || !invert)) {
    RefusePart(file, "pre-tokenizer", "Split with behavior " + behavior);
  }
  if (!pattern.is_object() || !pattern.contains("Regex"))
    RefusePart(file, "pre-tokenizer", "Split at a text");
  const std::string regex = TextMember(pattern, "Regex", file);
  const auto known = FindSplitPattern(regex);
  if (!known) RefusePart(file, "pre-tokenizer pattern", regex);
  return {*known};
}

char32_t ReadReplacement(const json& part, const Path& file) {
  const std::string text = JsonString(part, "replacement", "\xE2\x96\x81", file);
  if (text.empty() || CodePointAt(text, 0).bytes != text.size())
    RefuseTokenizer(file, "\"replacement\" is not one character");
  return CodePointAt(text, 0).value;
}

MetaspaceStep ReadMetaspace(const json& part, const Path& file) {
  using Prepend = MetaspaceStep::Prepend;
  MetaspaceStep step{ReadReplacement(part, file), Prepend::kAlways,
                     JsonBool(part, "split", true, file)};
  // Files written before "prepend_scheme" existed say it with "add_prefix_space".
  const std::string fallback = JsonBool(part, "add_prefix_space", true, file) ? "always" : "never";
  const std::string scheme = JsonString(part, "prepend_scheme", fallback, file);
  if (scheme == "never") step.prepend = Prepend::kNever;
  if (scheme == "first") step.prepend = Prepend::kFirst;
  if (scheme != "never" && scheme != "first" && scheme != "always")
    RefusePart(file, "prepend_scheme", scheme);
  return step;
}

void AddPreTokenizer(const json& part, const Path& file, std::vector<PreTokenizerStep>& out) {
  const std::string type = PartType(part, "pre-tokenizer", file);
  if (type == "Sequence") {
    for (const json& inner : ArrayMember(part, "pretokenizers", file))
      AddPreTokenizer(inner, file, out);
  } else if (type == "ByteLevel") {
    out.emplace_back(ByteLevelStep{JsonBool(part, "add_prefix_space", true, file),
                                   JsonBool(part, "use_regex", true, file)});
  } else if (type == "Split") {
    out.emplace_back(ReadSplit(part, file));
  } else if (type == "Digits") {
    out.emplace_back(DigitsStep{JsonBool(part, "individual_digits", false, file)});
  } else if (type == "Metaspace") {
    out.emplace_back(ReadMetaspace(part, file));
  } else {
    RefusePart(file, "pre-tokenizer", type);
  }
}

// {"special_tokens": {"<s>": {"ids": [1]}}}: the ids of the special token `name`.
std::vector<TokenId> SpecialTokenIds(const json& template_part, const std::string& name,
                                     const Path& file) {
  const json& all = Member(template_part, "special_tokens", file);
  if (!all.is_object() || !all.contains(name))
    RefuseTokenizer(file, fmt::format("the template's token \"{}\" has no ids", Printable(name)));
  std::vector<TokenId> ids;
  for (const json& id : ArrayMember(all[name], "ids", file))
    ids.push_back(JsonTokenId(id, name, file));
  return ids;
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
Frame ReadTemplate(const json& part, const Path& file) {
  Frame frame;
  int num_texts = 0;
  for (const json& item : ArrayMember(part, "single", file)) {
    if (item.is_object() && item.contains("Sequence")) {
      ++num_texts;
      continue;
    }
    if (!item.is_object() || !item.contains("SpecialToken"))
      RefusePart(file, "post-processor", "TemplateProcessing with this \"single\"");
    const auto ids = SpecialTokenIds(part, TextMember(item["SpecialToken"], "id", file), file);
    std::vector<TokenId>& side = num_texts == 0 ? frame.start : frame.end;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (num_texts != 1)
    RefusePart(file, "post-processor",
               fmt::format("TemplateProcessing with the text {} times", num_texts));
  return frame;
}

void AddDecoder(const json& part, const Path& file, std::vector<json>& out) {
  if (PartType(part, "decoder", file) != "Sequence") {
    out.push_back(part);
    return;
  }
  for (const json& inner : ArrayMember(part, "decoders", file)) AddDecoder(inner, file, out);
}

std::size_t CountMember(const json& part, const char* key, const Path& file) {
  const json& member = Member(part, key, file);
  if (!member.is_number_unsigned() || member.get<uint64_t>() > 1024)
    RefuseTokenizer(file, fmt::format("\"{}\" is not a small number", key));
  return member.get<std::size_t>();
}

void ReadStrip(const json& part, const Path& file, Decoder& decoder) {
  decoder.strip = TextMember(part, "content", file);
  decoder.strip_start = CountMember(part, "start", file);
  if (CountMember(part, "stop", file) != 0) RefusePart(file, "decoder", "Strip at the end");
  if (decoder.strip.empty()) decoder.strip_start = 0;
}

void ReadMetaspaceDecoder(const json& part, const Path& file, Decoder& decoder) {
  const MetaspaceStep step = ReadMetaspace(part, file);
  std::string replacement;
  AppendCodePoint(step.replacement, replacement);
  decoder.replace = ReplaceStep{replacement, " "};
  if (step.prepend != MetaspaceStep::Prepend::kNever) decoder.drop_in_first = replacement;
}

}  // namespace

std::string PartType(const json& part, const char* what, const Path& file) {
  if (!part.is_object()) RefuseTokenizer(file, fmt::format("a {} is not an object", what));
  return TextMember(part, "type", file);
}

std::vector<NormalizerStep> ReadNormalizer(const json& part, const Path& file) {
  std::vector<NormalizerStep> steps;
  if (!part.is_null()) AddNormalizer(part, file, steps);
  return steps;
}

std::vector<PreTokenizerStep> ReadPreTokenizer(const json& part, const Path& file) {
  std::vector<PreTokenizerStep> steps;
  if (!part.is_null()) AddPreTokenizer(part, file, steps);
  return steps;
}

Frame ReadPostProcessor(const json& part, const Path& file) {
  if (part.is_null()) return {};
  const std::string type = PartType(part, "post-processor", file);
  if (type == "ByteLevel") return {};  // moves offsets, which we do not have
  if (type == "TemplateProcessing") return ReadTemplate(part, file);
  if (type != "Sequence") RefusePart(file, "post-processor", type);
  Frame frame;
  for (const json& inner : ArrayMember(part, "processors", file)) {
    const Frame outer = ReadPostProcessor(inner, file);
    frame.start.insert(frame.start.begin(), outer.start.begin(), outer.start.end());
    frame.end.insert(frame.end.end(), outer.end.begin(), outer.end.end());
  }
  return frame;
}

Decoder ReadDecoder(const json& part, const Path& file) {
  if (part.is_null()) RefusePart(file, "decoder", "null");
  std::vector<json> steps;
  AddDecoder(part, file, steps);
  Decoder decoder;
  // The steps a decoder may have, each at most once, in this order.
  const std::vector<std::string> order = {"ByteLevel",    "Metaspace", "Replace",
                                          "ByteFallback", "Fuse",      "Strip"};
  auto next = order.begin();
  for (const json& step : steps) {
    const std::string type = PartType(step, "decoder", file);
    const auto place = std::find(next, order.end(), type);
    if (place == order.end()) RefusePart(file, "decoder", type);
    next = place + 1;
    if (type == "ByteLevel") decoder.byte_level = true;
    if (type == "Metaspace") ReadMetaspaceDecoder(step, file, decoder);
    if (type == "Replace") decoder.replace = ReadReplace(step, "decoder", file);
    if (type == "ByteFallback") decoder.byte_fallback = true;
    if (type == "Strip") ReadStrip(step, file, decoder);
  }
  return decoder;
}

}  // namespace spillway
