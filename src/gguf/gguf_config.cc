#include "src/gguf/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/gguf/gguf_tensor_map.h"
#include "src/gguf/gguf_type.h"

namespace spillway {
namespace {

using nlohmann::json;

// The fp32 number as it was written: 1e-05, not 9.99999974e-06.
double Shortest(double value) { return std::stod(fmt::format("{}", static_cast<float>(value))); }

struct FoundGgufTensor {
  const GgufTensor* tensor = nullptr;  // null: there is none
  const ModelFile* file = nullptr;
};

class ConfigWriter {
 public:
  explicit ConfigWriter(std::span<const GgufFile> files)
      : files_(files),
        metadata_(files.front().metadata),
        architecture_(metadata_.Text("general.architecture")) {}

  json Write();

 private:
  std::string Key(std::string_view name) const { return fmt::format("{}.{}", architecture_, name); }
  int64_t Count(std::string_view name) const { return metadata_.Count(Key(name)); }
  std::optional<int64_t> FindCount(std::string_view name) const {
    return metadata_.FindCount(Key(name));
  }
  std::optional<double> FindNumber(std::string_view name) const {
    return metadata_.FindNumber(Key(name));
  }
  FoundGgufTensor FindTensor(std::string_view name) const;
  bool HasTensor(std::string_view name) const { return FindTensor(name).tensor != nullptr; }
  // Whether that part of a layer has a bias, in all layers or in none.
  bool HasBias(std::string_view part) const {
    return HasTensor(fmt::format("blk.0.{}.bias", part));
  }
  bool HasBf16() const;
  int64_t HeadSize() const;
  [[noreturn]] void RefuseSetting(std::string_view name) const;

  bool IsGranite() const { return architecture_.starts_with("granite"); }
  bool HasExperts() const { return FindCount("expert_count").value_or(0) != 0; }
  bool TakesExperts() const;
  void RefuseUnread() const;
  void RefuseUnreadExperts() const;
  void AddSizes(json& config) const;
  void AddTokens(json& config) const;
  void AddRope(json& config) const;
  json Scaling() const;
  void AddAttentionFactor(json& scaling) const;
  json PublishedScaling(std::string type) const;
  json Llama3Scaling() const;
  std::vector<double> Factors(std::string_view tensor) const;
  void AddPhi3(json& config) const;
  void AddExperts(json& config) const;
  void AddGptOss(json& config) const;
  void AddMixtral(json& config) const;
  void AddQwenExperts(json& config) const;
  void AddGemma(json& config) const;
  void AddGranite(json& config) const;
  void AddOlmoWindows(json& config) const;
  std::vector<bool> Windowed(int64_t usual_period) const;
  void AddWindows(int64_t window, int64_t usual_period, json& config) const;
  int64_t WindowOr(int64_t usual) const {
    return FindCount("attention.sliding_window").value_or(usual);
  }
  void AddGemmaLayers(json& config) const;
  void AddFamily(json& config) const;

  std::span<const GgufFile> files_;
  const GgufMetadata& metadata_;
  std::string architecture_;
};

FoundGgufTensor ConfigWriter::FindTensor(std::string_view name) const {
  for (const GgufFile& file : files_) {
    const auto found = std::ranges::find(file.tensors, name, &GgufTensor::name);
    if (found != file.tensors.end()) return {&*found, &file.file};
  }
  return {};
}

bool ConfigWriter::HasBf16() const {
  return std::ranges::any_of(files_, [](const GgufFile& file) {
    return std::ranges::any_of(file.tensors, [](const GgufTensor& tensor) {
      const GgufType* type = FindGgufType(tensor.type);
      return type != nullptr && type->dtype == DType::kBF16;
    });
  });
}

void ConfigWriter::RefuseSetting(std::string_view name) const {
  throw Error(ErrorCode::kModelUnsupported,
              fmt::format("{}: has \"{}\", which is not supported; choose another model",
                          Printable(metadata_.source()), Printable(Key(name))));
}

int64_t ConfigWriter::HeadSize() const {
  const int64_t heads = Count("attention.head_count");
  if (heads == 0) metadata_.Refuse(fmt::format("\"{}\" is 0", Key("attention.head_count")));
  return FindCount("attention.key_length").value_or(Count("embedding_length") / heads);
}

bool ConfigWriter::TakesExperts() const {
  return architecture_ == "gpt-oss" || architecture_ == "llama" || architecture_.ends_with("moe");
}

// Refuses settings of experts that would change what the network computes and are not read.
void ConfigWriter::RefuseUnreadExperts() const {
  constexpr int64_t kSoftmax = 1;
  constexpr int64_t kSoftmaxOfChosen = 3;  // llama.cpp's number for gpt-oss
  if (!HasExperts()) return;
  if (!TakesExperts()) RefuseSetting("expert_count");
  const int64_t usual = architecture_ == "gpt-oss" ? kSoftmaxOfChosen : kSoftmax;
  if (FindCount("expert_gating_func").value_or(usual) != usual) RefuseSetting("expert_gating_func");
  const double scale = FindNumber("expert_weights_scale").value_or(1.0);
  if (scale != 1.0 && scale != 0.0) RefuseSetting("expert_weights_scale");  // 0: not set
  if (FindCount("expert_group_count").value_or(1) > 1) RefuseSetting("expert_group_count");
  if (architecture_ == "qwen2moe") return;
  if (FindCount("expert_shared_count").value_or(0) != 0) RefuseSetting("expert_shared_count");
  if (FindCount("expert_shared_feed_forward_length").value_or(0) != 0)
    RefuseSetting("expert_shared_feed_forward_length");
}

// Refuses settings that would change what the network computes and are not read.
void ConfigWriter::RefuseUnread() const {
  for (const char* name :
       {"attention.clamp_kqv", "attention.max_alibi_bias", "use_parallel_residual",
        "leading_dense_block_count", "attention.temperature_length", "attention.causal",
        "rope.dimension_sections", "deepstack_mapping"}) {
    if (metadata_.Has(Key(name))) RefuseSetting(name);
  }
  for (const char* name : {"residual_scale", "embedding_scale", "logit_scale", "attention.scale"}) {
    if (!IsGranite() && metadata_.Has(Key(name))) RefuseSetting(name);
  }
  if (FindCount("nextn_predict_layers").value_or(0) != 0) RefuseSetting("nextn_predict_layers");
  if (IsGranite() && !metadata_.FindFlag(Key("rope.scaling.finetuned")).value_or(true)) {
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{}: \"{}\" is false: its layers know no positions, which is read from "
                            "the original model's folder alone; use that",
                            Printable(metadata_.source()), Key("rope.scaling.finetuned")));
  }
  RefuseUnreadExperts();
  const int64_t values = FindCount("attention.value_length").value_or(HeadSize());
  if (values != HeadSize()) RefuseSetting("attention.value_length");
}

void ConfigWriter::AddSizes(json& config) const {
  const GgufTensor* embedding = FindTensor("token_embd.weight").tensor;
  if (embedding == nullptr || embedding->shape.size() != 2)
    metadata_.Refuse("has no matrix \"token_embd.weight\"");
  const int64_t heads = Count("attention.head_count");
  config["hidden_size"] = Count("embedding_length");
  config["intermediate_size"] = Count("feed_forward_length");
  config["num_hidden_layers"] = Count("block_count");
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] =
      metadata_.FindLayersCount(Key("attention.head_count_kv"), Count("block_count"))
          .value_or(heads);
  config["head_dim"] = HeadSize();
  config["max_position_embeddings"] = Count("context_length");
  config["rms_norm_eps"] = Shortest(metadata_.Number(Key("attention.layer_norm_rms_epsilon")));
  config["vocab_size"] = embedding->shape.front();
  config["tie_word_embeddings"] = !HasTensor("output.weight");
  config["torch_dtype"] = HasBf16() ? "bfloat16" : "float16";
}

void ConfigWriter::AddTokens(json& config) const {
  constexpr std::array<std::pair<const char*, const char*>, 3> kTokens = {
      {{"bos_token_id", "bos"}, {"eos_token_id", "eos"}, {"pad_token_id", "padding"}}};
  for (const auto& [key, name] : kTokens) {
    const auto id = metadata_.FindCount(fmt::format("tokenizer.ggml.{}_token_id", name));
    config[key] = id ? json(*id) : json(nullptr);
  }
}

std::vector<double> ConfigWriter::Factors(std::string_view name) const {
  const FoundGgufTensor found = FindTensor(name);
  const GgufTensor& tensor = *found.tensor;
  const GgufType* type = FindGgufType(tensor.type);
  const auto bytes = static_cast<int64_t>(sizeof(float)) * tensor.shape.back();
  if (type == nullptr || type->dtype != DType::kF32 || type->IsBlock() || tensor.shape.size() != 1)
    metadata_.Refuse(fmt::format("tensor \"{}\" is no vector of F32", name));
  if (tensor.offset + bytes > found.file->size())
    throw Error(ErrorCode::kModelTruncated,
                fmt::format("{}: ends within tensor \"{}\"; download it again",
                            Printable(metadata_.source()), name));
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.back()));
  found.file->ReadAt(tensor.offset, std::as_writable_bytes(std::span(values)));
  std::vector<double> factors;
  for (const float value : values) factors.push_back(Shortest(value));
  return factors;
}

// Factors by which pairs of a head are turned slower under Llama 3.1's scaling.
std::vector<double> Llama3Factors(double theta, std::size_t num_pairs, double factor) {
  constexpr double kLow = 1.0;
  constexpr double kHigh = 4.0;
  constexpr double kOriginal = 8192.0;
  std::vector<double> factors;
  for (std::size_t pair = 0; pair < num_pairs; ++pair) {
    const double share = static_cast<double>(pair) / static_cast<double>(num_pairs);
    const double wave = 2.0 * std::numbers::pi * std::pow(theta, share);
    const double smooth = std::clamp((kOriginal / wave - kLow) / (kHigh - kLow), 0.0, 1.0);
    factors.push_back(1.0 / ((1.0 - smooth) / factor + smooth));
  }
  return factors;
}

// llama.cpp keeps the factors of the pairs only; the scalings that are published are told by them.
json ConfigWriter::Llama3Scaling() const {
  constexpr double kTolerance = 1e-4;
  const std::vector<double> found = Factors("rope_freqs.weight");
  const double theta = Shortest(FindNumber("rope.freq_base").value_or(10000.0));
  for (const double factor : {8.0, 16.0, 32.0}) {
    const std::vector<double> known = Llama3Factors(theta, found.size(), factor);
    const bool same = std::ranges::equal(
        found, known, [](double a, double b) { return std::abs(a - b) <= kTolerance * b; });
    if (!same) continue;
    return {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}};
  }
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format("{}: \"rope_freqs.weight\" is not that of Llama 3.1, 3.2 or EXAONE 4, which "
                  "are supported; use the original model",
                  Printable(metadata_.source())));
}

// Writes the factor of cosines and sines under YaRN: transformers', which a file may have as it is,
// or else the usual one, times llama.cpp's own.
void ConfigWriter::AddAttentionFactor(json& scaling) const {
  constexpr auto kOwn = "rope.scaling.attn_factor";
  const auto published = FindNumber("rope.scaling.yarn_attn_factor");
  const double own = FindNumber(kOwn).value_or(1.0);
  if (own != 1.0 && scaling["rope_type"] != "yarn") RefuseSetting(kOwn);
  if (scaling["rope_type"] != "yarn" || (!published && own == 1.0)) return;
  const double usual = 1.0 + 0.1 * std::log(std::max(1.0, scaling["factor"].get<double>()));
  scaling["attention_factor"] = own * (published ? Shortest(*published) : usual);
}

json ConfigWriter::PublishedScaling(std::string type) const {
  json scaling = {{"rope_type", std::move(type)},
                  {"factor", Shortest(metadata_.Number(Key("rope.scaling.factor")))}};
  if (const auto original = FindCount("rope.scaling.original_context_length"))
    scaling["original_max_position_embeddings"] = *original;
  if (FindNumber("rope.scaling.yarn_log_multiplier").value_or(0.0) != 0.0)
    RefuseSetting("rope.scaling.yarn_log_multiplier");
  const double ext = FindNumber("rope.scaling.yarn_ext_factor").value_or(1.0);
  if (ext >= 0.0 && ext != 1.0) RefuseSetting("rope.scaling.yarn_ext_factor");  // below 0: not set
  AddAttentionFactor(scaling);
  constexpr std::array<std::pair<const char*, const char*>, 2> kNumbers = {
      {{"rope.scaling.yarn_beta_fast", "beta_fast"}, {"rope.scaling.yarn_beta_slow", "beta_slow"}}};
  for (const auto& [name, key] : kNumbers) {
    if (const auto value = FindNumber(name)) scaling[key] = Shortest(*value);
  }
  return scaling;
}

json ConfigWriter::Scaling() const {
  if (HasTensor("rope_freqs.weight")) return Llama3Scaling();
  const std::string type =
      metadata_.FindText(Key("rope.scaling.type")).value_or(std::string("none"));
  if (type == "none" || (type == "longrope" && architecture_ == "phi3")) return nullptr;
  if (type == "linear" || type == "yarn") return PublishedScaling(type);
  RefuseSetting("rope.scaling.type");
}

void ConfigWriter::AddRope(json& config) const {
  config["rope_theta"] = Shortest(FindNumber("rope.freq_base").value_or(10000.0));
  const int64_t turned = FindCount("rope.dimension_count").value_or(HeadSize());
  const bool may_be_part = architecture_ == "phi3" || architecture_ == "glm4";
  if (turned != HeadSize() && !may_be_part) RefuseSetting("rope.dimension_count");
  if (may_be_part) {
    config["partial_rotary_factor"] = static_cast<double>(turned) / static_cast<double>(HeadSize());
  }
  json scaling = Scaling();
  if (!scaling.is_null()) config["rope_scaling"] = std::move(scaling);
}

void ConfigWriter::AddPhi3(json& config) const {
  if (const auto window = FindCount("attention.sliding_window"); window.value_or(0) != 0)
    config["sliding_window"] = *window;
  const auto original = FindCount("rope.scaling.original_context_length");
  if (!HasTensor("rope_factors_long.weight")) return;
  if (!original || !HasTensor("rope_factors_short.weight"))
    metadata_.Refuse("has long factors of rotary positions without the short ones");
  config["original_max_position_embeddings"] = *original;
  json scaling = {{"rope_type", "longrope"},
                  {"short_factor", Factors("rope_factors_short.weight")},
                  {"long_factor", Factors("rope_factors_long.weight")}};
  if (const auto factor = FindNumber("rope.scaling.attn_factor"))
    scaling["attention_factor"] = Shortest(*factor);
  config["rope_scaling"] = std::move(scaling);
}

void ConfigWriter::AddExperts(json& config) const {
  config["num_local_experts"] = Count("expert_count");
  config["num_experts_per_tok"] = Count("expert_used_count");
}

// Windows by layer are those of the published models. So are frequencies: llama.cpp rounds the
// bounds between scaled pairs and others to pairs, which the published models do not.
void ConfigWriter::AddGptOss(json& config) const {
  AddExperts(config);
  config["model_type"] = "gpt_oss";
  config["attention_bias"] = HasBias("attn_q");
  config["intermediate_size"] =
      FindCount("expert_feed_forward_length").value_or(Count("feed_forward_length"));
  AddWindows(Count("attention.sliding_window"), 2, config);
  if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;
}

void ConfigWriter::AddMixtral(json& config) const {
  AddExperts(config);
  config["model_type"] = "mixtral";
}

// Whether weights are those of the chosen experts alone is left to the reader, by architecture.
void ConfigWriter::AddQwenExperts(json& config) const {
  const int64_t used = Count("expert_used_count");
  const int64_t ffn = Count("feed_forward_length");
  if (used == 0) metadata_.Refuse(fmt::format("\"{}\" is 0", Key("expert_used_count")));
  AddExperts(config);
  config["moe_intermediate_size"] = FindCount("expert_feed_forward_length").value_or(ffn / used);
  const bool shares = architecture_ == "qwen2moe";
  config["model_type"] = shares ? "qwen2_moe" : "qwen3_moe";
  config["norm_topk_prob"] = metadata_.FindFlag(Key("expert_weights_norm")).value_or(!shares);
  if (!shares) {
    config["attention_bias"] = HasBias("attn_q");
    return;
  }
  config["qkv_bias"] = HasBias("attn_q");
  config["shared_expert_intermediate_size"] =
      FindCount("expert_shared_feed_forward_length").value_or(ffn);
}

// Windows of Gemma 2 and 3 by layer, which a file may leave to the reader, and how queries are
// scaled, which it does.
void ConfigWriter::AddGemmaLayers(json& config) const {
  const int64_t num_layers = Count("block_count");
  if (architecture_ == "gemma2")
    AddWindows(WindowOr(4096), 2, config);
  else
    AddWindows(WindowOr(0), 6, config);
  // The largest size of each divides by the width that a head has of the states.
  const bool largest = num_layers == (architecture_ == "gemma2" ? 46 : 62);
  const int64_t heads = Count("attention.head_count");
  config["query_pre_attn_scalar"] = largest ? Count("embedding_length") / heads : HeadSize();
}

void ConfigWriter::AddGemma(json& config) const {
  config["attention_bias"] = false;
  config["hidden_activation"] = "gelu_pytorch_tanh";
  if (architecture_ == "gemma") return;
  AddGemmaLayers(config);
  if (architecture_ == "gemma3") {
    config["rope_local_base_freq"] = Shortest(FindNumber("rope.freq_base_swa").value_or(10000.0));
    if (const auto cap = FindNumber("final_logit_softcapping"); cap.value_or(0.0) != 0.0)
      config["final_logit_softcapping"] = Shortest(*cap);
    return;
  }
  config["attn_logit_softcapping"] = Shortest(FindNumber("attn_logit_softcapping").value_or(50.0));
  config["final_logit_softcapping"] =
      Shortest(FindNumber("final_logit_softcapping").value_or(30.0));
}

// Layers with a window: those that a list names, or all but each of a period, which is the
// architecture's `usual_period` where the file has none.
std::vector<bool> ConfigWriter::Windowed(int64_t usual_period) const {
  constexpr auto kPattern = "attention.sliding_window_pattern";
  const int64_t num_layers = Count("block_count");
  std::vector<bool> windowed;
  if (!metadata_.HasList(Key(kPattern))) {
    const int64_t period = FindCount(kPattern).value_or(usual_period);
    if (period == 0) RefuseSetting(kPattern);
    for (int64_t layer = 1; layer <= num_layers; ++layer) windowed.push_back(layer % period != 0);
    return windowed;
  }
  const std::vector<int64_t>& listed = *metadata_.FindCounts(Key(kPattern));
  if (std::ssize(listed) != num_layers)
    metadata_.Refuse(fmt::format("\"{}\" has {} entries for {} layers", Key(kPattern),
                                 listed.size(), num_layers));
  for (const int64_t is_windowed : listed) windowed.push_back(is_windowed != 0);
  return windowed;
}

// Writes the window, 0 for none, and which layers have it.
void ConfigWriter::AddWindows(int64_t window, int64_t usual_period, json& config) const {
  const double theta = FindNumber("rope.freq_base").value_or(10000.0);
  if (architecture_ != "gemma3" && FindNumber("rope.freq_base_swa").value_or(theta) != theta)
    RefuseSetting("rope.freq_base_swa");
  config["sliding_window"] = window == 0 ? json(nullptr) : json(window);
  json types = json::array();
  for (const bool windowed : Windowed(usual_period))
    types.push_back(windowed && window != 0 ? "sliding_attention" : "full_attention");
  config["layer_types"] = std::move(types);
}

// Models of these architectures without a window are others than those with one.
void ConfigWriter::AddOlmoWindows(json& config) const {
  AddWindows(WindowOr(0), 4, config);
  if (config["sliding_window"].is_null()) {
    config.erase("layer_types");
  } else if (architecture_ == "olmo2") {
    config["model_type"] = "olmo3";
  }
}

void ConfigWriter::AddGranite(json& config) const {
  if (HasExperts())
    AddExperts(config);
  else
    config["model_type"] = "granite";  // as llama.cpp takes one of the other architecture
  constexpr std::array<std::pair<const char*, const char*>, 4> kFactors = {
      {{"attention.scale", "attention_multiplier"},
       {"embedding_scale", "embedding_multiplier"},
       {"residual_scale", "residual_multiplier"},
       {"logit_scale", "logits_scaling"}}};
  // Takes llama.cpp's scale where the file has none; transformers would take 1.
  config["attention_multiplier"] = 1.0 / std::sqrt(static_cast<double>(HeadSize()));
  for (const auto& [name, key] : kFactors) {
    const double factor = FindNumber(name).value_or(0.0);
    if (factor != 0.0) config[key] = Shortest(factor);  // 0: not set
  }
}

void ConfigWriter::AddFamily(json& config) const {
  std::string type = architecture_ == "gemma3" ? "gemma3_text" : architecture_;
  if (architecture_ == "llama" && FindCount("attention.sliding_window").value_or(0) != 0) {
    type = "mistral";
    config["sliding_window"] = Count("attention.sliding_window");
  }
  config["model_type"] = std::move(type);
  if (architecture_.starts_with("gemma")) return AddGemma(config);
  config["hidden_act"] = "silu";
  if (architecture_ == "phi3") AddPhi3(config);
  if (architecture_ == "gpt-oss") AddGptOss(config);
  if (architecture_ == "qwen2moe" || architecture_ == "qwen3moe") return AddQwenExperts(config);
  if (architecture_ == "llama" && HasExperts()) return AddMixtral(config);
  if (IsGranite()) AddGranite(config);
  if (architecture_ == "exaone4" || architecture_ == "olmo2") AddOlmoWindows(config);
  constexpr std::array kMayHaveBiases = {"glm4",  "granite", "granitemoe", "llama",
                                         "olmo2", "qwen3",   "seed_oss",   "smollm3"};
  if (std::ranges::find(kMayHaveBiases, architecture_) != kMayHaveBiases.end())
    config["attention_bias"] = HasBias("attn_q");
  constexpr std::array kMayHaveMlpBiases = {"granite", "granitemoe", "llama", "seed_oss",
                                            "smollm3"};
  if (std::ranges::find(kMayHaveMlpBiases, architecture_) != kMayHaveMlpBiases.end())
    config["mlp_bias"] = HasBias("ffn_up");
  if (architecture_ == "seed_oss") config["attention_out_bias"] = HasBias("attn_output");
}

json ConfigWriter::Write() {
  RefuseUnread();
  json config;
  AddSizes(config);
  AddTokens(config);
  AddRope(config);
  AddFamily(config);
  return config;
}

}  // namespace

json GgufConfig(std::span<const GgufFile> files) {
  const GgufMetadata& metadata = files.front().metadata;
  const std::string architecture = metadata.Text("general.architecture");
  if (IsGgufArchitecture(architecture)) return ConfigWriter(files).Write();
  throw Error(
      ErrorCode::kModelUnsupported,
      fmt::format("{}: \"general.architecture\" is \"{}\", supported are {}; choose "
                  "another model",
                  Printable(metadata.source()), Printable(architecture, 40), GgufArchitectures()));
}

json GgufGeneration(const GgufMetadata& metadata) {
  json ends = json::array();
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id = metadata.FindCount(fmt::format("tokenizer.ggml.{}_token_id", name));
    if (id && std::ranges::find(ends, json(*id)) == ends.end()) ends.push_back(*id);
  }
  return ends.empty() ? json::object() : json{{"eos_token_id", std::move(ends)}};
}

}  // namespace spillway
