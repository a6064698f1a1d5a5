#include "src/requests/sampling_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "spillway/error.h"
#include "src/base/json_text.h"

namespace spillway {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxStops = 16;  // OpenAI takes 4
constexpr std::size_t kMaxStopBytes = 4096;
constexpr int64_t kMaxLogprobs = 20;
constexpr double kMaxTemperature = 100.0;

using Reader = MaybeFault (*)(const json& value, Sampling& sampling);
using Neutral = bool (*)(const json& value);

std::string Shown(const json& value) { return Printable(JsonText(value), 40); }

LineFault Invalid(const char* key, const char* wanted, const json& value) {
  return {"invalid_value", fmt::format("\"{}\" must be {}, not {}", key, wanted, Shown(value))};
}

// The integer, when it is one between the bounds. 32.0 is none: it may have been 31.999.
std::optional<int64_t> Integer(const json& value, int64_t min, int64_t max) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(max))
    return std::nullopt;
  const auto number = value.get<int64_t>();
  return number < min || number > max ? std::nullopt : std::optional(number);
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
  if (!value.is_number_integer()) return Invalid("seed", "an integer of 64 bits", value);
  // A negative seed stands for its two's complement.
  sampling.seed = value.is_number_unsigned() ? value.get<uint64_t>()
                                             : static_cast<uint64_t>(value.get<int64_t>());
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
    if (text.empty()) return LineFault{"invalid_value", "\"stop\" must not hold an empty string"};
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
  const auto number = Integer(value, 0, kMaxLogprobs);
  if (!number) return Invalid("logprobs", "an integer from 0 to 20 or null", value);
  sampling.num_logprobs = *number;
  return std::nullopt;
}

struct SamplingKey {
  std::string_view name;
  Reader read;
};

constexpr std::array kSamplingKeys = {
    SamplingKey{"max_tokens", ReadMaxTokens},
    SamplingKey{"min_tokens", ReadMinTokens},
    SamplingKey{"temperature", ReadTemperature},
    SamplingKey{"top_p", ReadTopP},
    SamplingKey{"top_k", ReadTopK},
    SamplingKey{"seed", ReadSeed},
    SamplingKey{"stop", ReadStop},
    SamplingKey{"ignore_eos", ReadIgnoreEos},
    SamplingKey{"logprobs", ReadLogprobs},
};

// Compared as numbers: 0, 0.0 and -0.0 are the same penalty, 1 and 1.0 the same count.
bool IsZero(const json& value) { return value.is_number() && value.get<double>() == 0.0; }
bool IsOne(const json& value) { return value.is_number() && value.get<double>() == 1.0; }
bool IsFalse(const json& value) { return value.is_boolean() && !value.get<bool>(); }
bool IsNothing(const json&) { return false; }
bool IsEmptyObject(const json& value) { return value.is_object() && value.empty(); }
bool IsString(const json& value) { return value.is_string(); }
bool IsObject(const json& value) { return value.is_object(); }

struct NeutralKey {
  std::string_view name;
  Neutral is_neutral;  // null is neutral for all
  const char* neutral;
};

constexpr std::array kNeutralKeys = {
    NeutralKey{"n", IsOne, "1"},
    NeutralKey{"best_of", IsOne, "1"},
    NeutralKey{"echo", IsFalse, "false"},
    NeutralKey{"stream", IsFalse, "false"},
    NeutralKey{"stream_options", IsNothing, "null"},
    NeutralKey{"presence_penalty", IsZero, "0"},
    NeutralKey{"frequency_penalty", IsZero, "0"},
    NeutralKey{"logit_bias", IsEmptyObject, "null or {}"},
    NeutralKey{"suffix", IsNothing, "null"},
    NeutralKey{"user", IsString, "a string"},
    NeutralKey{"metadata", IsObject, "an object"},
    // The run has one model, named by --model.
    NeutralKey{"model", IsString, "a string"},
};

template <typename Key, std::size_t kSize>
const Key* Find(const std::array<Key, kSize>& keys, std::string_view name) {
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace

bool IsSamplingKey(std::string_view key) {
  return Find(kSamplingKeys, key) != nullptr || Find(kNeutralKeys, key) != nullptr;
}

MaybeFault ReadSamplingKeys(const json& body, Sampling& sampling) {
  for (const auto& [name, value] : body.items()) {
    if (value.is_null()) {
      if (name == "logprobs") sampling.num_logprobs = -1;
      continue;
    }
    if (const SamplingKey* key = Find(kSamplingKeys, name)) {
      if (MaybeFault fault = key->read(value, sampling)) return fault;
    } else if (const NeutralKey* neutral = Find(kNeutralKeys, name);
               neutral && !neutral->is_neutral(value)) {
      return LineFault{"unsupported_value",
                       fmt::format("\"{}\": {} is not supported; leave it out or give {}", name,
                                   Shown(value), neutral->neutral)};
    }
  }
  if (sampling.min_tokens > sampling.max_tokens) {
    return LineFault{"invalid_value", fmt::format("\"min_tokens\" is {}, over \"max_tokens\" {}",
                                                  sampling.min_tokens, sampling.max_tokens)};
  }
  return std::nullopt;
}

}  // namespace spillway
