#include "src/requests/body_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "spillway/error.h"
#include "src/requests/chat_line.h"
#include "src/requests/cut_prompt.h"
#include "src/requests/sampling_keys.h"
#include "src/requests/score_line.h"

namespace spillway {
namespace {

using nlohmann::json;

std::vector<std::string_view> NearKeysOf(BodyForm form) {
  std::vector<std::string_view> keys = DistinctDocumentedKeys(form);
  const auto add = [&](auto names) { keys.insert(keys.begin(), names.begin(), names.end()); };
  add(SamplingKeyNames());
  add(std::array<std::string_view, 5>{"prompt", "token_ids", "messages", "custom_id", kCutKey});
  if (form == BodyForm::kChat) {
    add(ChatKeyNames());
    keys.push_back("top_logprobs");
  }
  return keys;
}

bool IsRead(std::string_view key, BodyForm form) {
  if (IsDocumentedKey(key, form)) return CheckDocumentedKey(key, json(NAN), form).has_value();
  return IsKeyOf(key, form);
}

bool HoldsNonFinite(const json& value) {
  if (value.is_structured()) return std::ranges::any_of(value, HoldsNonFinite);
  return value.is_number_float() && !std::isfinite(value.get<double>());
}

}  // namespace

bool IsBatchKey(std::string_view key) { return key == "method" || key == "url" || key == "body"; }

bool IsKeyOf(std::string_view key, BodyForm form) {
  if (IsSamplingKey(key, form) || IsDocumentedKey(key, form)) return true;
  if (key == "prompt" || key == "token_ids" || key == "messages") return true;
  if (key == kCutKey || key == kSwitchKey) return true;
  return form == BodyForm::kChat && IsChatKey(key);
}

std::span<const std::string_view> NearKeys(BodyForm form) {
  static const std::vector<std::string_view> completion = NearKeysOf(BodyForm::kCompletion);
  static const std::vector<std::string_view> chat = NearKeysOf(BodyForm::kChat);
  return form == BodyForm::kChat ? chat : completion;
}

std::span<const OtherName> OtherNames() {
  static constexpr std::array kNames = {
      OtherName{"max_new_tokens", "max_tokens"},
      OtherName{"max_length", "max_tokens"},
      OtherName{"n_predict", "max_tokens"},
      OtherName{"min_new_tokens", "min_tokens"},
      OtherName{"repeat_penalty", "repetition_penalty"},
      OtherName{"stop_sequences", "stop"},
      OtherName{"stop_strings", "stop"},
      OtherName{"random_seed", "seed"},
      OtherName{"enable_thinking", "chat_template_kwargs"},
  };
  return kNames;
}

bool IsReadToAnswer(std::string_view key) {
  return key == "custom_id" || IsBatchKey(key) || IsRead(key, BodyForm::kCompletion) ||
         IsRead(key, BodyForm::kChat);
}

bool IsReadToScore(std::string_view key) { return IsScoreKey(key) || IsReadToAnswer(key); }

MaybeFault CheckNonFinite(const json& keys, bool (*is_read)(std::string_view key)) {
  for (const auto& [key, value] : keys.items()) {
    if (key == "body" && value.is_object()) {
      if (MaybeFault fault = CheckNonFinite(value, is_read)) return fault;
    } else if (HoldsNonFinite(value) && is_read(key)) {
      return LineFault{"invalid_value",
                       fmt::format("\"{}\" holds NaN or Infinity, which no key may", key)};
    }
  }
  return std::nullopt;
}

}  // namespace spillway
