#include "src/requests/documented_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "spillway/error.h"
#include "src/base/json_text.h"

namespace spillway {
namespace {

using nlohmann::json;

using Neutral = bool (*)(const json& value);

// Compared as numbers: 0, 0.0 and -0.0 are the same penalty, 1 and 1.0 the same count.
bool IsZero(const json& value) { return value.is_number() && value.get<double>() == 0.0; }
bool IsOne(const json& value) { return value.is_number() && value.get<double>() == 1.0; }
bool IsFalse(const json& value) { return value.is_boolean() && !value.get<bool>(); }
bool IsTrue(const json& value) { return value.is_boolean() && value.get<bool>(); }
bool IsBoolean(const json& value) { return value.is_boolean(); }
bool IsNothing(const json&) { return false; }
bool IsAny(const json&) { return true; }
bool IsEmptyText(const json& value) { return value == json(""); }
bool IsEmptyList(const json& value) { return value.is_array() && value.empty(); }
bool IsEmptyObject(const json& value) { return value.is_object() && value.empty(); }
bool IsFalseOrZero(const json& value) { return IsFalse(value) || IsZero(value); }

bool IsBiasOfNothing(const json& value) {
  return value.is_object() && std::ranges::all_of(value, IsZero);
}

bool IsPlainText(const json& value) { return value == json{{"type", "text"}}; }
bool IsTextAlone(const json& value) { return value == json::array({"text"}); }
bool IsNoCall(const json& value) { return value == json("none") || value == json("auto"); }
bool IsMedium(const json& value) { return value == json("medium"); }

struct DocumentedKey {
  std::string_view name;
  Neutral is_neutral;   // null is neutral for all
  const char* neutral;  // what to give in place of another
};

constexpr const char* kAny = "anything";

constexpr std::array kKeys = {
    DocumentedKey{"n", IsOne, "1"},
    DocumentedKey{"best_of", IsOne, "1"},
    DocumentedKey{"use_beam_search", IsFalse, "false"},
    DocumentedKey{"num_beams", IsOne, "1"},
    DocumentedKey{"length_penalty", IsOne, "1"},
    DocumentedKey{"early_stopping", IsFalse, "false"},
    DocumentedKey{"echo", IsFalse, "false"},
    DocumentedKey{"stream", IsBoolean, "false"},
    DocumentedKey{"num_return_sequences", IsOne, "1"},
    DocumentedKey{"detokenize", IsTrue, "true"},
    DocumentedKey{"modalities", IsTextAlone, "[\"text\"]"},
    // Calls of tools are part of the text, one or several.
    DocumentedKey{"parallel_tool_calls", IsBoolean, "true or false"},
    DocumentedKey{"presence_penalty", IsZero, "0"},
    DocumentedKey{"frequency_penalty", IsZero, "0"},
    DocumentedKey{"no_repeat_ngram_size", IsZero, "0"},
    DocumentedKey{"min_p", IsZero, "0"},
    DocumentedKey{"typical_p", IsOne, "1"},
    DocumentedKey{"logit_bias", IsBiasOfNothing, "null or {}"},
    DocumentedKey{"allowed_token_ids", IsNothing, "null"},
    DocumentedKey{"bad_words", IsEmptyList, "[]"},
    DocumentedKey{"logits_processors", IsEmptyList, "[]"},
    DocumentedKey{"suffix", IsEmptyText, "null"},
    DocumentedKey{"include_stop_str_in_output", IsFalse, "false"},
    DocumentedKey{"skip_special_tokens", IsTrue, "true"},
    DocumentedKey{"spaces_between_special_tokens", IsBoolean, "true"},
    DocumentedKey{"prompt_logprobs", IsNothing, "null"},
    DocumentedKey{"prompt_embeds", IsNothing, "null"},
    DocumentedKey{"response_format", IsPlainText, "{\"type\":\"text\"}"},
    DocumentedKey{"structured_outputs", IsEmptyObject, "null"},
    DocumentedKey{"guided_json", IsNothing, "null"},
    DocumentedKey{"guided_regex", IsNothing, "null"},
    DocumentedKey{"guided_grammar", IsNothing, "null"},
    DocumentedKey{"structural_tag", IsNothing, "null"},
    DocumentedKey{"return_tokens_as_token_ids", IsFalse, "false"},
    DocumentedKey{"vllm_xargs", IsEmptyObject, "null"},
    DocumentedKey{"kv_transfer_params", IsNothing, "null"},
    DocumentedKey{"mm_processor_kwargs", IsEmptyObject, "null"},
    // These change nothing of what is generated. The run has one model, named by --model; token ids
    // are always returned.
    DocumentedKey{"model", IsAny, kAny},
    DocumentedKey{"user", IsAny, kAny},
    DocumentedKey{"metadata", IsAny, kAny},
    DocumentedKey{"store", IsAny, kAny},
    DocumentedKey{"service_tier", IsAny, kAny},
    DocumentedKey{"priority", IsAny, kAny},
    DocumentedKey{"request_id", IsAny, kAny},
    DocumentedKey{"stream_options", IsAny, kAny},
    DocumentedKey{"safety_identifier", IsAny, kAny},
    DocumentedKey{"prompt_cache_key", IsAny, kAny},
    DocumentedKey{"prompt_cache_retention", IsAny, kAny},
    DocumentedKey{"cache_salt", IsAny, kAny},
    DocumentedKey{"return_token_ids", IsAny, kAny},
    DocumentedKey{"guided_decoding_backend", IsAny, kAny},
    DocumentedKey{"guided_whitespace_pattern", IsAny, kAny},
};

constexpr const char* kMessages = "it beside \"messages\"";

// Keys of conversations, where there is none.
constexpr std::array kCompletionKeys = {
    DocumentedKey{"add_special_tokens", IsTrue, "true"},
    DocumentedKey{"top_logprobs", IsFalseOrZero, "\"logprobs\""},
    DocumentedKey{"tools", IsEmptyList, kMessages},
    DocumentedKey{"tool_choice", IsNoCall, kMessages},
    DocumentedKey{"documents", IsEmptyList, kMessages},
    DocumentedKey{"chat_template_kwargs", IsEmptyObject, kMessages},
    DocumentedKey{"add_generation_prompt", IsBoolean, kMessages},
    DocumentedKey{"continue_final_message", IsFalse, kMessages},
};

constexpr std::array kChatKeys = {
    DocumentedKey{"add_special_tokens", IsFalse, "false"},
    DocumentedKey{"reasoning_effort", IsMedium, "chat_template_kwargs"},
    DocumentedKey{"include_reasoning", IsTrue, "true"},
    DocumentedKey{"thinking_token_budget", IsNothing, "null"},
    DocumentedKey{"verbosity", IsMedium, "\"medium\""},
    DocumentedKey{"chat_template", IsNothing, "--chat-template"},
    DocumentedKey{"functions", IsEmptyList, "tools"},
    DocumentedKey{"function_call", IsNoCall, "null"},
    DocumentedKey{"audio", IsNothing, "null"},
    DocumentedKey{"prediction", IsNothing, "null"},
    DocumentedKey{"web_search_options", IsNothing, "null"},
};

template <std::size_t kSize>
const DocumentedKey* Find(const std::array<DocumentedKey, kSize>& keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &DocumentedKey::name);
  return found == keys.end() ? nullptr : &*found;
}

const DocumentedKey* Find(std::string_view name, BodyForm form) {
  const DocumentedKey* own =
      form == BodyForm::kChat ? Find(kChatKeys, name) : Find(kCompletionKeys, name);
  return own != nullptr ? own : Find(kKeys, name);
}

}  // namespace

bool IsDocumentedKey(std::string_view key, BodyForm form) { return Find(key, form) != nullptr; }

MaybeFault CheckDocumentedKey(std::string_view key, const json& value, BodyForm form) {
  const DocumentedKey* known = Find(key, form);
  if (known == nullptr || value.is_null() || known->is_neutral(value)) return std::nullopt;
  return LineFault{"unsupported_value",
                   fmt::format("\"{}\": {} is not supported; leave it out or give {}", key,
                               Printable(JsonText(value), 40), known->neutral)};
}

std::vector<std::string_view> DistinctDocumentedKeys(BodyForm form) {
  constexpr std::size_t kLeastLetters = 8;
  std::vector<std::string_view> distinct;
  const auto add = [&](const DocumentedKey& key) {
    if (key.is_neutral == IsAny || key.name.size() < kLeastLetters) return;
    if (key.name.find('_') != std::string_view::npos) distinct.push_back(key.name);
  };
  std::ranges::for_each(kKeys, add);
  if (form == BodyForm::kChat) std::ranges::for_each(kChatKeys, add);
  return distinct;
}

}  // namespace spillway
