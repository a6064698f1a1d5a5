#include "src/checkpoint/generation_config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/base/json_text.h"
#include "src/checkpoint/bounded_json.h"
#include "src/checkpoint/model_folder.h"

namespace spillway {
namespace {

constexpr const char* kName = "generation_config.json";
constexpr int64_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxTokens = 1 << 30;

// A setting, and the value at which it does nothing; null does nothing for all.
struct Setting {
  const char* name;
  const char* neutral;
  bool samples_only = false;  // counts where do_sample is true
};

constexpr std::array kUnsupported = {
    Setting{"num_beams", "1"},
    Setting{"num_beam_groups", "1"},
    Setting{"num_return_sequences", "1"},
    Setting{"penalty_alpha", "0.0"},
    Setting{"dola_layers", "null"},
    Setting{"diversity_penalty", "0.0"},
    Setting{"encoder_repetition_penalty", "1.0"},
    Setting{"no_repeat_ngram_size", "0"},
    Setting{"encoder_no_repeat_ngram_size", "0"},
    Setting{"bad_words_ids", "null"},
    Setting{"force_words_ids", "null"},
    Setting{"constraints", "null"},
    Setting{"forced_bos_token_id", "null"},
    Setting{"forced_eos_token_id", "null"},
    Setting{"exponential_decay_length_penalty", "null"},
    Setting{"suppress_tokens", "null"},
    Setting{"begin_suppress_tokens", "null"},
    Setting{"sequence_bias", "null"},
    Setting{"guidance_scale", "1.0"},
    Setting{"watermarking_config", "null"},
    Setting{"min_p", "0.0", true},
    Setting{"top_h", "null", true},
    Setting{"typical_p", "1.0", true},
    Setting{"epsilon_cutoff", "0.0", true},
    Setting{"eta_cutoff", "0.0", true},
};

void RefuseUnsupported(const JsonNode& config, bool do_sample) {
  for (const Setting& setting : kUnsupported) {
    const std::optional<JsonNode> found = config.FindSet(setting.name);
    if (!found || (setting.samples_only && !do_sample)) continue;
    if (found->value() == nlohmann::json::parse(setting.neutral)) continue;
    if (found->value().is_array() && found->value().empty()) continue;
    config.Refuse(ErrorCode::kModelUnsupported,
                  fmt::format("\"{}\" is {}, which is not supported", setting.name,
                              Printable(JsonText(found->value()), 40)),
                  "give --ignore-generation-config to generate without these settings");
  }
}

std::optional<double> Real(const JsonNode& config, const char* key, double low, double high) {
  const std::optional<JsonNode> found = config.FindSet(key);
  return found ? std::optional(found->Number(low, high)) : std::nullopt;
}

// A setting of sampling: NaN and infinity say nothing where nothing is sampled.
std::optional<double> SampledReal(const JsonNode& config, const char* key, double high) {
  const std::optional<JsonNode> found = config.FindSet(key);
  const bool is_number = found && found->value().is_number_float();
  const bool said = !is_number || std::isfinite(found->value().get<double>());
  return said || config.Boolean("do_sample", false) ? Real(config, key, 0.0, high) : std::nullopt;
}

std::optional<int64_t> Whole(const JsonNode& config, const char* key, int64_t low) {
  const std::optional<JsonNode> found = config.FindSet(key);
  return found ? std::optional(found->Integer({low, kMaxTokens})) : std::nullopt;
}

std::vector<std::string> StopStrings(const JsonNode& config) {
  const std::optional<JsonNode> found = config.FindSet("stop_strings");
  if (!found) return {};
  std::vector<std::string> texts;
  if (found->value().is_array()) {
    for (const JsonNode& item : found->Items()) texts.push_back(item.Text());
  } else {
    texts.push_back(found->Text());
  }
  std::erase(texts, "");  // would end every row at once
  return texts;
}

}  // namespace

nlohmann::json ReadGenerationDocument(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  if (!folder.Has(kName)) return {};
  const ModelFile file = folder.Open(kName);
  const bool blank = file.size() <= kMaxBytes &&
                     file.ReadStart(kMaxBytes).find_first_not_of(" \t\r\n") == std::string::npos;
  return blank ? nlohmann::json() : ReadPythonJson(file, kMaxBytes);
}

GenerationConfig ReadGenerationConfig(const nlohmann::json& document) {
  GenerationConfig read;
  if (document.is_null()) return read;
  const JsonOrigin origin = ConfigOrigin(kName);
  const JsonNode config = ConfigRoot(document, origin);
  read.do_sample = config.Boolean("do_sample", false);
  RefuseUnsupported(config, read.do_sample);
  read.temperature = SampledReal(config, "temperature", 100.0);
  read.top_p = SampledReal(config, "top_p", 1.0);
  read.top_k = Whole(config, "top_k", 0);
  read.repetition_penalty = Real(config, "repetition_penalty", 1e-9, 100.0);
  read.max_new_tokens = Whole(config, "max_new_tokens", 1);
  read.min_new_tokens = Whole(config, "min_new_tokens", 0);
  read.stop_strings = StopStrings(config);
  return read;
}

}  // namespace spillway
