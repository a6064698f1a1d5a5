#include "src/requests/sampling_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "spillway/error.h"
#include "src/base/json_text.h"
#include "src/requests/whole_number.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxStops = 16;  // OpenAI takes 4
constexpr std::size_t kMaxStopBytes = 4096;
constexpr int64_t kMaxLogprobs = 20;
constexpr double kMaxTemperature = 100.0;
constexpr double kMaxRepetitionPenalty = 100.0;
constexpr std::size_t kMaxStopTokens = 256;
constexpr std::size_t kMaxChoices = 1024;
constexpr std::size_t kMaxChoiceBytes = 65536;  // of all

using Reader = MaybeFault (*)(const json& value, Sampling& sampling);

std::string Shown(const json& value) { return Printable(JsonText(value), 40); }

LineFault Invalid(const char* key, const char* wanted, const json& value) {
  return {"invalid_value", fmt::format("\"{}\" must be {}, not {}", key, wanted, Shown(value))};
}

// The integer, when it is one between the bounds.
std::optional<int64_t> Integer(const json& value, int64_t min, int64_t max) {
  const std::optional<int64_t> number = WholeNumber(value);
  return number && *number >= min && *number <= max ? number : std::nullopt;
}

MaybeFault ReadMaxTokens(const json& value, Sampling& sampling) {
  const auto number = Integer(value, 1, INT64_MAX);
  if (!number) return Invalid("max_tokens", "an integer of at least 1", value);
  sampling.max_tokens = *number;
  return std::nullopt;
}

MaybeFault ReadMinTokens(const json& value, Sampling& sampling) {
  const auto number = Integer(value, 0, INT64_MAX);
  if (!number) return Invalid("min_tokens", "an integer of at least 0", value);
  sampling.min_tokens = *number;
  return std::nullopt;
}

MaybeFault ReadTemperature(const json& value, Sampling& sampling) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (!(number >= 0.0 && number <= kMaxTemperature))
    return Invalid("temperature", "a number from 0 to 100", value);
  sampling.temperature = number;
  return std::nullopt;
}

MaybeFault ReadTopP(const json& value, Sampling& sampling) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (!(number > 0.0 && number <= 1.0))
    return Invalid("top_p", "a number over 0 and at most 1", value);
  sampling.top_p = number;
  return std::nullopt;
}

MaybeFault ReadTopK(const json& value, Sampling& sampling) {
  const auto number = Integer(value, -1, INT64_MAX);
  if (!number) return Invalid("top_k", "an integer of at least 0 (0 and -1: off)", value);
  sampling.top_k = std::max<int64_t>(*number, 0);
  return std::nullopt;
}

MaybeFault ReadSeed(const json& value, Sampling& sampling) {
  if (value.is_number_unsigned()) {
    sampling.seed = value.get<uint64_t>();
    return std::nullopt;
  }
  const std::optional<int64_t> number = WholeNumber(value);
  if (!number) return Invalid("seed", "an integer of 64 bits", value);
  // A negative seed stands for its two's complement.
  sampling.seed = static_cast<uint64_t>(*number);
  return std::nullopt;
}

MaybeFault ReadStop(const json& value, Sampling& sampling) {
  const json list = value.is_string() ? json::array({value}) : value;
  if (!list.is_array()) return Invalid("stop", "a string or a list of strings", value);
  if (list.size() > kMaxStops)
    return LineFault{"invalid_value", fmt::format("\"stop\" takes at most {} strings, not {}",
                                                  kMaxStops, list.size())};
  sampling.stop.clear();
  for (const json& stop : list) {
    if (!stop.is_string()) return Invalid("stop", "a string or a list of strings", value);
    const auto& text = stop.get_ref<const std::string&>();
    if (text.empty()) continue;
    if (text.size() > kMaxStopBytes)
      return LineFault{"invalid_value",
                       fmt::format("a \"stop\" string has {} bytes; at most {} are taken",
                                   text.size(), kMaxStopBytes)};
    sampling.stop.push_back(text);
  }
  return std::nullopt;
}

MaybeFault ReadIgnoreEos(const json& value, Sampling& sampling) {
  if (!value.is_boolean()) return Invalid("ignore_eos", "true or false", value);
  sampling.ignore_eos = value.get<bool>();
  return std::nullopt;
}

MaybeFault ReadLogprobs(const json& value, Sampling& sampling) {
  if (value == json(false)) {
    sampling.num_logprobs = -1;
    return std::nullopt;
  }
  const auto number = Integer(value, 0, kMaxLogprobs);
  if (!number) return Invalid("logprobs", "an integer from 0 to 20, false or null", value);
  sampling.num_logprobs = *number;
  return std::nullopt;
}

MaybeFault ReadChatLogprobs(const json& value, Sampling& sampling) {
  if (!value.is_boolean()) return Invalid("logprobs", "true or false", value);
  sampling.num_logprobs = value.get<bool>() ? std::max<int64_t>(sampling.num_logprobs, 0) : -1;
  return std::nullopt;
}

// Stands behind "logprobs" in the order of keys.
MaybeFault ReadTopLogprobs(const json& value, Sampling& sampling) {
  const auto number = Integer(value, 0, kMaxLogprobs);
  if (!number) return Invalid("top_logprobs", "an integer from 0 to 20", value);
  if (sampling.num_logprobs < 0 && *number > 0)
    return LineFault{"invalid_value", "\"top_logprobs\" needs \"logprobs\": true"};
  if (sampling.num_logprobs >= 0) sampling.num_logprobs = *number;
  return std::nullopt;
}

MaybeFault ReadStopTokenIds(const json& value, Sampling& sampling) {
  if (!value.is_array() || value.size() > kMaxStopTokens)
    return Invalid("stop_token_ids", "a list of up to 256 token ids", value);
  sampling.stop_token_ids.clear();
  for (const json& item : value) {
    const auto id = Integer(item, 0, INT32_MAX);
    if (!id) return Invalid("stop_token_ids", "a list of up to 256 token ids", value);
    sampling.stop_token_ids.push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

MaybeFault ReadChoices(const json& value, Sampling& sampling) {
  constexpr const char* kWanted = "a list of up to 1,024 strings, none of them empty";
  if (!value.is_array() || value.size() > kMaxChoices) return Invalid("choices", kWanted, value);
  sampling.choices.clear();
  std::size_t num_bytes = 0;
  for (const json& choice : value) {
    if (!choice.is_string() || choice == "") return Invalid("choices", kWanted, choice);
    sampling.choices.push_back(choice.get<std::string>());
    num_bytes += sampling.choices.back().size();
  }
  if (num_bytes <= kMaxChoiceBytes) return std::nullopt;
  return LineFault{"invalid_value",
                   fmt::format("\"choices\" have {} bytes; at most 65,536 are taken", num_bytes)};
}

// vLLM's newer name: {"choice": [...]}.
MaybeFault ReadStructuredOutputs(const json& value, Sampling& sampling) {
  const bool has_others = !value.is_object() || std::ranges::any_of(value.items(), [](auto item) {
    return item.key() != "choice" && !item.value().is_null();
  });
  if (has_others || !value.contains("choice"))
    return CheckDocumentedKey("structured_outputs", value, BodyForm::kCompletion);
  return value["choice"].is_null() ? std::nullopt : ReadChoices(value["choice"], sampling);
}

MaybeFault ReadRepetitionPenalty(const json& value, Sampling& sampling) {
  const double number = value.is_number() ? value.get<double>() : -1.0;
  if (!(number > 0.0 && number <= kMaxRepetitionPenalty))
    return Invalid("repetition_penalty", "a number over 0 and at most 100", value);
  sampling.repetition_penalty = number;
  return std::nullopt;
}

struct SamplingKey {
  std::string_view name;
  Reader read;
};

constexpr std::array kSamplingKeys = {
    SamplingKey{"max_tokens", ReadMaxTokens},
    SamplingKey{"max_completion_tokens", ReadMaxTokens},
    SamplingKey{"min_tokens", ReadMinTokens},
    SamplingKey{"temperature", ReadTemperature},
    SamplingKey{"top_p", ReadTopP},
    SamplingKey{"top_k", ReadTopK},
    SamplingKey{"seed", ReadSeed},
    SamplingKey{"stop", ReadStop},
    SamplingKey{"ignore_eos", ReadIgnoreEos},
    SamplingKey{"logprobs", ReadLogprobs},
    SamplingKey{"stop_token_ids", ReadStopTokenIds},
    SamplingKey{"repetition_penalty", ReadRepetitionPenalty},
    SamplingKey{"choices", ReadChoices},
    SamplingKey{"guided_choice", ReadChoices},
    SamplingKey{"structured_outputs", ReadStructuredOutputs},
};

// Keys beside the others, and in place of those of the same name.
constexpr std::array kChatSamplingKeys = {
    SamplingKey{"logprobs", ReadChatLogprobs},
    SamplingKey{"top_logprobs", ReadTopLogprobs},
};

template <std::size_t kSize>
const SamplingKey* Find(const std::array<SamplingKey, kSize>& keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &SamplingKey::name);
  return found == keys.end() ? nullptr : &*found;
}

const SamplingKey* Find(std::string_view name, BodyForm form) {
  const SamplingKey* chat = form == BodyForm::kChat ? Find(kChatSamplingKeys, name) : nullptr;
  return chat != nullptr ? chat : Find(kSamplingKeys, name);
}

constexpr auto kNames = [] {
  std::array<std::string_view, kSamplingKeys.size()> names;
  std::ranges::transform(kSamplingKeys, names.begin(), &SamplingKey::name);
  return names;
}();

// Two names of one limit.
MaybeFault CheckMaxTokens(const json& body) {
  const auto old = body.find("max_tokens");
  const auto now = body.find("max_completion_tokens");
  if (old == body.end() || now == body.end() || old->is_null() || now->is_null() || *old == *now)
    return std::nullopt;
  return LineFault{"invalid_value",
                   "\"max_tokens\" and \"max_completion_tokens\" differ; give one"};
}

// Names of choices that a line states are of the same ones. An empty list is of any text, and only
// by the first name.
MaybeFault CheckChoiceNames(const json& body) {
  std::vector<const json*> lists;
  const auto add = [&](const json& object, const char* name) {
    const auto found = object.find(name);
    if (found != object.end() && !found->is_null()) lists.push_back(&*found);
  };
  add(body, "choices");
  const std::size_t num_of_ours = lists.size();
  add(body, "guided_choice");
  if (const auto outputs = body.find("structured_outputs"); outputs != body.end())
    if (outputs->is_object()) add(*outputs, "choice");
  for (std::size_t at = 0; at < lists.size(); ++at) {
    if (*lists[at] != *lists.front())
      return LineFault{"invalid_value",
                       "\"choices\" stand there by two names, and differ; give one"};
    if (at >= num_of_ours && lists[at]->empty())
      return LineFault{"invalid_value", "there is no choice in the list; give some, or null"};
  }
  return std::nullopt;
}

// Ends of the line's own, which an answer that is one of the choices does not wait for.
MaybeFault CheckEndsOfChoices(const json& body, const Sampling& sampling) {
  if (sampling.choices.empty()) return std::nullopt;
  for (const char* key :
       {"stop", "stop_token_ids", "min_tokens", "ignore_eos", "repetition_penalty"}) {
    const auto stated = body.find(key);
    const bool is_penalty = key == std::string_view("repetition_penalty");
    const bool says_nothing = stated == body.end() || stated->is_null() || *stated == false ||
                              *stated == (is_penalty ? 1 : 0) || *stated == json::array();
    if (!says_nothing)
      return LineFault{"invalid_value",
                       fmt::format("\"choices\" and \"{}\" do not go together: the "
                                   "answer ends with its choice",
                                   key)};
  }
  return std::nullopt;
}

}  // namespace

bool IsSamplingKey(std::string_view key, BodyForm form) { return Find(key, form) != nullptr; }

std::span<const std::string_view> SamplingKeyNames() { return kNames; }

MaybeFault ReadSamplingKeys(const json& body, BodyForm form, Sampling& sampling) {
  if (MaybeFault fault = CheckMaxTokens(body)) return fault;
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) {
      if (name == "logprobs") sampling.num_logprobs = -1;
      continue;
    }
    const SamplingKey* key = Find(name, form);
    MaybeFault fault =
        key != nullptr ? key->read(value, sampling) : CheckDocumentedKey(name, value, form);
    if (fault) return fault;
  }
  if (MaybeFault fault = CheckChoiceNames(body)) return fault;
  if (MaybeFault fault = CheckEndsOfChoices(body, sampling)) return fault;
  if (sampling.choices.empty() && sampling.min_tokens > sampling.max_tokens) {
    return LineFault{"invalid_value", fmt::format("\"min_tokens\" is {}, over \"max_tokens\" {}",
                                                  sampling.min_tokens, sampling.max_tokens)};
  }
  return std::nullopt;
}

}  // namespace spillway
