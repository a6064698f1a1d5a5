// Generation config: what a model's generation_config.json says about sampling. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace spillway {

struct GenerationConfig {
  bool do_sample = false;  // false, or not said: greedy
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
  std::optional<int64_t> min_new_tokens;
  std::vector<std::string> stop_strings;
};

// The file of `folder` as JSON; null where it has none. Throws: Error kModelMalformed, kIo.
nlohmann::json ReadGenerationDocument(const std::filesystem::path& folder);

// Settings of the document; all unsaid where it is null.
// Throws: Error kModelMalformed, kModelInconsistent (a value out of range), kModelUnsupported (a
// setting that changes what is generated and is not supported, by name).
GenerationConfig ReadGenerationConfig(const nlohmann::json& document);

}  // namespace spillway
