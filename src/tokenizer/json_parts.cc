#include "src/tokenizer/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "spillway/error.h"
#include "src/tokenizer/json_file.h"
#include "src/tokenizer/json_part.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

// Tokens that a template puts around a text; published ones put three.
constexpr std::size_t kMaxFrame = 1024;

void CheckFrame(const JsonNode& part, std::size_t num_tokens) {
  if (num_tokens > kMaxFrame)
    part.Refuse(fmt::format("the post-processor adds more than {} tokens to a text", kMaxFrame));
}

// {"special_tokens": {"<s>": {"ids": [1]}}}: the ids of the special token `name`.
std::vector<TokenId> SpecialTokenIds(const JsonNode& template_part, const std::string& name) {
  const JsonNode all = template_part.Member("special_tokens");
  const std::optional<JsonNode> named = all.Find(name);
  if (!named) all.Refuse(fmt::format("the template's token \"{}\" has no ids", Printable(name)));
  const JsonNode list = named->Member("ids");
  CheckFrame(list, list.value().size());
  std::vector<TokenId> ids;
  for (const JsonNode& id : list.Items()) ids.push_back(JsonTokenId(id.value(), name, id));
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
    CheckFrame(part, side.size());
  }
  if (num_texts != 1)
    RefusePart(part, "post-processor",
               fmt::format("TemplateProcessing with the text {} times", num_texts));
  return frame;
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}: the id of one of the two.
TokenId PairId(const JsonNode& part, const char* key) {
  const JsonNode pair = part.Member(key);
  const nlohmann::json& value = pair.value();
  if (!value.is_array() || value.size() != 2 || !value[0].is_string())
    part.Refuse(fmt::format("\"{}\" is not a token and its id", key));
  return JsonTokenId(value[1], value[0].get<std::string>(), pair);
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

Frame ReadPostProcessor(const JsonNode& part) {
  if (part.value().is_null()) return {};
  const std::string type = PartType(part, "post-processor");
  if (type == "ByteLevel") return {};  // moves offsets, which we do not have
  if (type == "TemplateProcessing") return ReadTemplate(part);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return {{PairId(part, "cls")}, {PairId(part, "sep")}};
  if (type != "Sequence") RefusePart(part, "post-processor", type);
  Frame frame;
  for (const JsonNode& inner : part.Member("processors").Items()) {
    const Frame outer = ReadPostProcessor(inner);
    frame.start.insert(frame.start.begin(), outer.start.begin(), outer.start.end());
    frame.end.insert(frame.end.end(), outer.end.begin(), outer.end.end());
    CheckFrame(part, std::max(frame.start.size(), frame.end.size()));
  }
  return frame;
}

Decoder ReadDecoder(const JsonNode& part) {
  Decoder decoder;
  decoder.space_between = part.value().is_null();
  std::vector<JsonNode> steps;
  if (!decoder.space_between) AddDecoder(part, steps);
  // The steps a decoder may have, each at most once, in this order.
  const std::vector<std::string> order = {"ByteLevel",    "Metaspace", "Replace",
                                          "ByteFallback", "Fuse",      "Strip"};
  auto next = order.begin();
  bool is_fused = false;
  for (const JsonNode& step : steps) {
    const std::string type = PartType(step, "decoder");
    const auto place = std::find(next, order.end(), type);
    if (place == order.end()) RefusePart(part, "decoder", type);
    next = place + 1;
    if (type == "ByteLevel") decoder.byte_level = true;
    if (type == "Metaspace") ReadMetaspaceDecoder(step, decoder);
    if (type == "Replace") decoder.replace = ReadReplace(step, "decoder");
    if (type == "ByteFallback") decoder.byte_fallback = true;
    if (type == "Fuse") is_fused = true;
    if (type == "Strip" && !is_fused) RefusePart(part, "decoder", "Strip of every token");
    if (type == "Strip") ReadStrip(step, decoder);
  }
  return decoder;
}

}  // namespace spillway
