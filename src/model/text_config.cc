#include "src/model/text_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "spillway/error.h"
#include "src/model/family.h"

namespace spillway {
namespace {

using nlohmann::json;

// Text parts that see a prompt of text as they do alone, and what they are where config.json does
// not say it, as in transformers.
struct Wrapper {
  std::string_view model_type;
  std::string_view text_type;
  bool tied_head = false;
};
constexpr std::array kWrappers = {
    Wrapper{"gemma3", "gemma3_text", true}, Wrapper{"idefics3", "llama"},
    Wrapper{"internvl", "qwen2"},           Wrapper{"llava", "llama"},
    Wrapper{"llava_next", "llama"},         Wrapper{"llava_onevision", "qwen2"},
    Wrapper{"mistral3", "mistral"},         Wrapper{"smolvlm", "llama"},
};

const Wrapper* WrapperOf(std::string_view model_type) {
  const auto* found = std::ranges::find(kWrappers, model_type, &Wrapper::model_type);
  return found == kWrappers.end() ? nullptr : found;
}

// transformers ties the head where either of the two says so.
bool TiesHead(const JsonNode& whole, const JsonNode& part, const Wrapper& wrapper) {
  constexpr const char* kKey = "tie_word_embeddings";
  if (!whole.FindSet(kKey) && !part.FindSet(kKey)) return wrapper.tied_head;
  return whole.Boolean(kKey, false) || part.Boolean(kKey, false);
}

// Types of the whole model, and its tokens, stand for the part's.
void TakeFromWhole(const json& whole, json& part) {
  if (whole.contains("dtype") || whole.contains("torch_dtype")) {
    part.erase("dtype");
    part.erase("torch_dtype");
  }
  for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    const auto found = whole.find(key);
    if (found != whole.end() && !found->is_null()) part[key] = *found;
  }
}

}  // namespace

std::optional<json> TextConfigOf(const JsonNode& config) {
  const std::string type = config.Text("model_type", "");
  const Wrapper* wrapper = WrapperOf(type);
  if (wrapper == nullptr) return std::nullopt;
  const JsonNode part = config.Member("text_config");
  if (!part.value().is_object()) config.Refuse("\"text_config\" is not an object");
  const std::string text_type = part.Text("model_type", wrapper->text_type);
  const Family* family = FindFamily(text_type);
  if (family == nullptr || family->text_defaults.empty()) {
    config.Refuse(ErrorCode::kModelUnsupported,
                  fmt::format("\"text_config\" is of the type \"{}\", which is not supported in "
                              "\"{}\"",
                              Printable(text_type, 40), type),
                  "choose another model");
  }
  json merged = json::parse(family->text_defaults);
  for (const auto& [key, value] : part.value().items()) merged[key] = value;
  merged["model_type"] = text_type;
  merged["tie_word_embeddings"] = TiesHead(config, part, *wrapper);
  TakeFromWhole(config.value(), merged);
  return merged;
}

bool HasOtherParts(std::string_view model_type) { return WrapperOf(model_type) != nullptr; }

}  // namespace spillway
