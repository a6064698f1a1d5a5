#include "src/checkpoint/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/base/terminal.h"
#include "src/checkpoint/bounded_json.h"
#include "src/checkpoint/generation_config.h"
#include "src/checkpoint/model_folder.h"
#include "src/checkpoint/numpy_folder.h"
#include "src/model/family.h"
#include "src/model/text_config.h"

namespace spillway {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

const Family& FamilyOf(const JsonNode& config) {
  const std::string name = config.Member("model_type").Text();
  if (const Family* family = FindFamily(name)) return *family;
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"model_type\" is \"{}\", which is not supported; nearest are {}",
                            Printable(name, 40), FamiliesLike(name)),
                "choose a model of one that docs/models.md lists");
}

// True for a class in "auto_map" ("modeling_phi3.Phi3ForCausalLM") that is the family's own.
bool IsOfFamily(std::string_view code, const Family& family) {
  const std::string_view name = code.substr(code.find_last_of('.') + 1);
  return !family.code_class.empty() && name.starts_with(family.code_class);
}

// Refuses code of the model's own, unless it is the family's; what a tokenizer's name says is not
// of the network.
void RefuseCode(const JsonNode& config, const Family& family) {
  const std::optional<JsonNode> map = config.Find("auto_map");
  if (!map) return;
  const bool known =
      map->value().is_object() && std::ranges::all_of(map->value().items(), [&](const auto& item) {
        return item.key() == "AutoTokenizer" ||
               (item.value().is_string() &&
                IsOfFamily(item.value().template get<std::string>(), family));
      });
  if (known) return;
  config.Refuse(ErrorCode::kModelUnsupported,
                "has \"auto_map\", which is not supported (code of its own is never run)",
                "use the original model");
}

// Codes of MXFP4 beside matrices of bf16, as published: fp16 has neither's range.
bool IsMxfp4WithoutType(const ModelConfig& read, const JsonNode& config) {
  return read.quantisation && read.quantisation->method == CodeMethod::kMxfp4 &&
         !config.FindSet(TypeKey(config));
}

// bf16 stays bf16: fp16 does not have its range.
DType ReadDType(const JsonNode& config) {
  constexpr std::array kHeldAsF16 = {"float16", "float32", "float64", "auto"};
  const std::string found = NamedType(config);
  if (found == "bfloat16") return DType::kBF16;
  if (std::ranges::find(kHeldAsF16, found) != kHeldAsF16.end()) return DType::kF16;
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"{}\" is \"{}\", supported are float16, bfloat16 and float32",
                            TypeKey(config), Printable(found, 40)),
                "convert the model");
}

constexpr auto kConfigName = "config.json";
constexpr auto kAdapterName = "adapter_config.json";

// -1 is an old spelling of "none".
constexpr IntegerRange kTokenIds = {-1, std::numeric_limits<TokenId>::max()};

// The token where the model has it: settings of models that were trained from nothing are often
// those of a larger vocabulary. -1: none.
int64_t OfVocabulary(const char* file, std::string_view key, int64_t id, const ModelShape& shape) {
  if (id < shape.vocab_size) return id;
  PrintWarning(fmt::format("{}: \"{}\" is {}, and the model's ids end at {}: it has none", file,
                           key, id, shape.vocab_size - 1));
  return -1;
}

TokenId ReadTokenId(const JsonNode& config, std::string_view key, int64_t usual,
                    const ModelShape& shape) {
  const int64_t fallback = usual < shape.vocab_size ? usual : -1;
  const int64_t id = config.Integer(key, kTokenIds, fallback);
  return static_cast<TokenId>(OfVocabulary(kConfigName, key, id, shape));
}

std::vector<TokenId> ReadEos(const JsonNode& eos, const char* file, const ModelShape& shape) {
  std::vector<TokenId> ids;
  for (const int64_t id : DistinctIntegers(eos, kTokenIds)) {
    const int64_t found = OfVocabulary(file, "eos_token_id", id, shape);
    if (found >= 0) ids.push_back(static_cast<TokenId>(found));
  }
  return ids;
}

void ReadTokenIds(const JsonNode& config, const Family& family, ModelShape& shape) {
  shape.bos = ReadTokenId(config, "bos_token_id", family.bos, shape);
  shape.pad = ReadTokenId(config, "pad_token_id", family.pad, shape);
  if (const std::optional<JsonNode> eos = config.Find("eos_token_id")) {
    shape.eos = ReadEos(*eos, kConfigName, shape);
  } else if (family.eos >= 0 && family.eos < shape.vocab_size) {
    shape.eos = {family.eos};
  }
}

// Generation settings beat the model's own, as in transformers' generate().
void ReadGenerationEos(const nlohmann::json& document, ModelShape& shape) {
  if (document.is_null()) return;
  constexpr auto kName = "generation_config.json";
  const JsonOrigin origin = ConfigOrigin(kName);
  if (const auto eos = ConfigRoot(document, origin).Find("eos_token_id"))
    shape.eos = ReadEos(*eos, kName, shape);
}

ModelShape ShapeOf(const JsonNode& config) {
  const Family& family = FamilyOf(config);
  RefuseCode(config, family);
  RequireSetting(config, "is_causal", true);
  ModelShape shape = family.read(config);
  shape.family = family.model_type;
  shape.dtype = ReadDType(config);
  ReadTokenIds(config, family, shape);
  return shape;
}

void WarnOfAdapter(const ModelFolder& folder, const std::filesystem::path& path) {
  if (!folder.Has(kAdapterName)) return;
  PrintWarning(fmt::format("{}: the adapter of {} is not applied; merge it into the weights first",
                           Printable(path.string(), 160), kAdapterName));
}

}  // namespace

ModelConfig ReadModelConfig(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  ModelConfig read;
  if (!folder.Has(kConfigName)) {
    if (std::optional<ModelShape> shape = NumpyFolderShape(folder)) {
      read.shape = *std::move(shape);
      read.generation = ReadGenerationDocument(path);
      return read;
    }
    const bool is_adapter = folder.Has(kAdapterName);
    throw Error(
        ErrorCode::kModelMissing,
        fmt::format("{}: {}; give --model a Hugging Face model folder",
                    Printable(path.string(), 160),
                    is_adapter ? "is an adapter (adapter_config.json), which is merged into "
                                 "its model's weights first"
                               : "has no config.json"));
  }
  WarnOfAdapter(folder, path);
  const nlohmann::json document = ReadPythonJson(folder.Open(kConfigName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kConfigName);
  const JsonNode config = ConfigRoot(document, origin);
  const std::optional<nlohmann::json> text = TextConfigOf(config);
  const JsonNode part = text ? JsonNode(*text, origin) : config;
  RefuseCode(config, FamilyOf(part));
  read.shape = ShapeOf(part);
  read.shape.name = folder.name();
  read.quantisation = ReadQuantisation(config.FindSet("quantization_config") ? config : part);
  if (IsMxfp4WithoutType(read, part)) read.shape.dtype = DType::kBF16;
  std::string type = config.Text("model_type", "");
  if (HasOtherParts(type)) read.type_of_whole = std::move(type);
  read.generation = ReadGenerationDocument(path);
  ReadGenerationEos(read.generation, read.shape);
  return read;
}

ModelShape ReadModelShape(const std::filesystem::path& path) { return ReadModelConfig(path).shape; }

}  // namespace spillway
