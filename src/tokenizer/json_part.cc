#include "src/tokenizer/json_part.h"

#include <fmt/format.h>

#include <stdexcept>

#include "spillway/error.h"
#include "src/unicode/utf8.h"

namespace spillway {
namespace {

constexpr const char* kPartRemedy =
    "convert the model's tokenizer to byte-level BPE or SentencePiece";

char32_t ReadReplacement(const JsonNode& part) {
  const std::string text = part.Text("replacement", "\xE2\x96\x81");
  if (text.empty() || CodePointAt(text, 0).bytes != text.size())
    part.Refuse("\"replacement\" is not one character");
  return CodePointAt(text, 0).value;
}

}  // namespace

void RefusePart(const JsonNode& in, const char* what, std::string_view part) {
  in.Refuse(fmt::format("the {} \"{}\" is not supported", what, Printable(part)), kPartRemedy);
}

std::string TextMember(const JsonNode& part, const char* key) { return part.Member(key).Text(); }

std::string PartType(const JsonNode& part, const char* what) {
  if (!part.value().is_object()) part.Refuse(fmt::format("a {} is not an object", what));
  return TextMember(part, "type");
}

Regex ReadRegex(const JsonNode& pattern, const char* what) {
  const std::string text = TextMember(pattern, "Regex");
  try {
    return Regex(text);
  } catch (const std::invalid_argument& fault) {
    pattern.Refuse(fmt::format("the {} pattern \"{}\" is not supported: {}", what,
                               Printable(text, 60), fault.what()),
                   kPartRemedy);
  }
}

ReplaceStep ReadReplace(const JsonNode& part, const char* what) {
  const JsonNode pattern = part.Member("pattern");
  if (!pattern.value().is_object() || !pattern.value().contains("String"))
    RefusePart(part, what, "Replace with a regular expression");
  ReplaceStep step{TextMember(pattern, "String"), TextMember(part, "content")};
  if (step.what.empty()) RefusePart(part, what, "Replace of an empty text");
  return step;
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

}  // namespace spillway
