#include "src/checkpoint/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "src/base/config_reader.h"
#include "src/checkpoint/bounded_json.h"
#include "src/checkpoint/model_folder.h"
#include "src/checkpoint/numpy_folder.h"
#include "src/model/family.h"
#include "src/model/text_config.h"

namespace spillway {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;

// Refuses keys that change the meaning of the tensors in a way that we do not know.
void RefuseUnsupported(const JsonNode& config) {
  for (const char* key : {"quantization_config", "auto_map"}) {
    if (!config.Find(key)) continue;
    const bool is_code = std::string_view(key) == "auto_map";
    config.Refuse(
        ErrorCode::kModelUnsupported,
        fmt::format("has \"{}\", which is not supported ({})", key,
                    is_code ? "code of its own is never run" : "quantised by another program"),
        "use the original model");
  }
}

const Family& FamilyOf(const JsonNode& config) {
  const std::string name = config.Member("model_type").Text();
  if (const Family* family = FindFamily(name)) return *family;
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"model_type\" is \"{}\", supported {}", Printable(name, 40),
                            SupportedFamilies()),
                "choose a model of that family");
}

// transformers 5 writes "dtype", earlier ones "torch_dtype". bf16 stays bf16: fp16 does not have
// its range.
DType ReadDType(const JsonNode& config) {
  const char* key = config.Find("dtype") ? "dtype" : "torch_dtype";
  const std::string found = config.Text(key, "float16");
  if (found == "bfloat16") return DType::kBF16;
  if (found == "float16" || found == "float32" || found == "auto") return DType::kF16;
  config.Refuse(ErrorCode::kModelUnsupported,
                fmt::format("\"{}\" is \"{}\", supported are float16, bfloat16 and float32", key,
                            Printable(found, 40)),
                "convert the model");
}

void ReadTokenIds(const JsonNode& config, const Family& family, ModelShape& shape) {
  // -1 is an old spelling of "none".
  const IntegerRange ids = {-1, shape.vocab_size - 1};
  const auto fallback = [&](int64_t id) { return id < shape.vocab_size ? id : -1; };
  shape.bos = static_cast<TokenId>(config.Integer("bos_token_id", ids, fallback(family.bos)));
  shape.pad = static_cast<TokenId>(config.Integer("pad_token_id", ids, fallback(family.pad)));
  const std::optional<JsonNode> eos = config.Find("eos_token_id");
  for (const int64_t id : eos ? DistinctIntegers(*eos, ids) : std::vector{fallback(family.eos)}) {
    if (id >= 0) shape.eos.push_back(static_cast<TokenId>(id));
  }
}

// Generation settings beat the model's own, as in transformers' generate().
void ReadGenerationEos(const ModelFolder& folder, ModelShape& shape) {
  constexpr auto kName = "generation_config.json";
  if (!folder.Has(kName)) return;
  const nlohmann::json document = ReadBoundedJson(folder.Open(kName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kName);
  const auto eos = ConfigRoot(document, origin).Find("eos_token_id");
  if (!eos) return;
  shape.eos.clear();
  for (const int64_t id : DistinctIntegers(*eos, {0, shape.vocab_size - 1}))
    shape.eos.push_back(static_cast<TokenId>(id));
}

ModelShape ShapeOf(const JsonNode& config) {
  RefuseUnsupported(config);
  const Family& family = FamilyOf(config);
  ModelShape shape = family.read(config);
  shape.family = family.model_type;
  shape.dtype = ReadDType(config);
  ReadTokenIds(config, family, shape);
  return shape;
}

constexpr auto kConfigName = "config.json";

}  // namespace

ModelShape ReadModelShape(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  if (!folder.Has(kConfigName)) {
    if (std::optional<ModelShape> shape = NumpyFolderShape(folder)) return *shape;
    throw Error(ErrorCode::kModelMissing,
                fmt::format("{}: has no config.json; give --model a Hugging Face model folder",
                            Printable(folder.name())));
  }
  const nlohmann::json document = ReadBoundedJson(folder.Open(kConfigName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kConfigName);
  const JsonNode config = ConfigRoot(document, origin);
  RefuseUnsupported(config);
  const std::optional<nlohmann::json> text = TextConfigOf(config);
  ModelShape shape = ShapeOf(text ? JsonNode(*text, origin) : config);
  shape.max_positions = std::max(shape.max_positions, ScaledPositions(shape.rope));
  shape.name = folder.name();
  ReadGenerationEos(folder, shape);
  return shape;
}

std::string TypeOfWhole(const std::filesystem::path& path) {
  const ModelFolder folder(path);
  if (!folder.Has(kConfigName)) return "";
  const nlohmann::json document = ReadBoundedJson(folder.Open(kConfigName), kMaxConfigBytes);
  const JsonOrigin origin = ConfigOrigin(kConfigName);
  std::string type = ConfigRoot(document, origin).Text("model_type", "");
  return HasOtherParts(type) ? type : "";
}

}  // namespace spillway
