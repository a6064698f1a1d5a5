#include "src/checkpoint/quantisation.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr IntegerRange kGroups = {-1, 1 << 20};

[[noreturn]] void RefuseSetting(const JsonNode& node, std::string_view key, std::string_view found,
                                std::string_view supported) {
  node.Refuse(ErrorCode::kModelUnsupported,
              fmt::format("\"{}\" of \"quantization_config\" is {}, supported {}", key,
                          Printable(found, 40), supported),
              "use the original model");
}

int ReadBits(const JsonNode& node, std::string_view key) {
  const int64_t bits = node.Member(key).Integer({1, 64});
  if (bits != 4 && bits != 8) RefuseSetting(node, key, fmt::format("{}", bits), "are 4 and 8");
  return static_cast<int>(bits);
}

Quantisation ReadGptq(const JsonNode& node) {
  Quantisation codes = {.method = CodeMethod::kGptq, .bits = ReadBits(node, "bits")};
  codes.group_size = node.Integer("group_size", kGroups, -1);
  codes.reorders = node.Boolean("desc_act", false);
  const std::string format = node.Text("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    RefuseSetting(node, "checkpoint_format", format, "are gptq and gptq_v2");
  codes.zero_added = format == "gptq" ? 1 : 0;
  return codes;
}

Quantisation ReadAwq(const JsonNode& node) {
  const std::string version = node.Text("version", "gemm");
  if (version != "gemm" && version != "GEMM") RefuseSetting(node, "version", version, "is gemm");
  Quantisation codes = {.method = CodeMethod::kAwq, .bits = ReadBits(node, "bits")};
  if (codes.bits != 4) RefuseSetting(node, "bits", "8", "is 4");
  codes.group_size = node.Integer("group_size", kGroups, 128);
  return codes;
}

// Sets the size of a block that shares a scale, where `key` says it.
void ReadBlock(const JsonNode& node, std::string_view key, Quantisation& codes) {
  const auto blocks = node.FindSet(key);
  if (!blocks) return;
  constexpr IntegerRange kSizes = {1, 1 << 20};
  std::vector<int64_t> sizes;
  for (const JsonNode& size : blocks->Items()) sizes.push_back(size.Integer(kSizes));
  if (sizes.size() != 2)
    blocks->Refuse(fmt::format("\"{}\" has {} numbers, not 2", key, sizes.size()));
  codes.block_rows = sizes[0];
  codes.block_cols = sizes[1];
}

Quantisation ReadFp8(const JsonNode& node) {
  Quantisation codes = {.is_fp8 = true};
  ReadBlock(node, "weight_block_size", codes);
  return codes;
}

Quantisation ReadGroup(const JsonNode& weights, const std::string& format) {
  if (format == "float-quantized" || format == "int-quantized" || format == "naive-quantized") {
    const std::string strategy = weights.Text("strategy", "tensor");
    if (strategy == "group")
      RefuseSetting(weights, "strategy", strategy, "are tensor, channel and block");
    if (weights.Member("num_bits").Integer({1, 64}) != 8)
      RefuseSetting(weights, "num_bits", "not 8", "is 8");
    Quantisation codes = {.is_fp8 = weights.Text("type", "int") == "float"};
    ReadBlock(weights, "block_structure", codes);
    return codes;
  }
  if (format != "pack-quantized")
    RefuseSetting(weights, "format", format,
                  "are pack-quantized, int-quantized, float-quantized and naive-quantized");
  Quantisation codes = {.method = CodeMethod::kPacked, .bits = ReadBits(weights, "num_bits")};
  if (weights.Text("type", "int") != "int")
    RefuseSetting(weights, "type", weights.Text("type", "int"), "is int");
  codes.group_size =
      weights.FindSet("group_size") ? weights.Member("group_size").Integer(kGroups) : -1;
  return codes;
}

Quantisation ReadCompressed(const JsonNode& node) {
  const std::string format = node.Text("format", "");
  std::optional<Quantisation> codes;
  const JsonNode groups = node.Member("config_groups");
  for (const auto& [name, value] : groups.value().items()) {
    const JsonNode group = groups.Member(name);
    const auto own = group.FindSet("format");
    const Quantisation found = ReadGroup(group.Member("weights"), own ? own->Text() : format);
    if (codes && *codes != found)
      RefuseSetting(node, "config_groups", "of several kinds", "is one kind");
    codes = found;
  }
  if (codes) return *codes;
  RefuseSetting(node, "config_groups", "empty", "is one group");
}

// What "modules_to_not_convert" lists is published as it is: a tensor without codes is read so.
Quantisation ReadMxfp4(const JsonNode& node) {
  if (const auto dequantised = node.FindSet("dequantize"); dequantised && dequantised->Boolean())
    RefuseSetting(node, "dequantize", "true", "is false");
  return {.method = CodeMethod::kMxfp4, .bits = 4, .group_size = kMxfp4Group};
}

}  // namespace

std::optional<DType> HeldCodes(const Quantisation& codes) {
  switch (codes.method) {
    case CodeMethod::kMxfp4:
      return std::nullopt;  // of experts alone
    case CodeMethod::kScaled:
      if (codes.block_cols % kGroupWeights != 0) return std::nullopt;
      return codes.is_fp8 ? DType::kFp8 : DType::kInt8;
    case CodeMethod::kGptq:
    case CodeMethod::kAwq:
    case CodeMethod::kPacked:
      break;
  }
  if (codes.reorders) return std::nullopt;
  if (codes.group_size > 0 && codes.group_size % kGroupWeights != 0) return std::nullopt;
  return codes.bits == 8 ? DType::kInt8 : DType::kInt4;
}

std::optional<Quantisation> ReadQuantisation(const JsonNode& config) {
  const auto node = config.FindSet("quantization_config");
  if (!node) return std::nullopt;
  const std::string method = node->Member("quant_method").Text();
  if (method == "gptq") return ReadGptq(*node);
  if (method == "awq") return ReadAwq(*node);
  if (method == "fp8") return ReadFp8(*node);
  if (method == "compressed-tensors") return ReadCompressed(*node);
  if (method == "mxfp4") return ReadMxfp4(*node);
  RefuseSetting(*node, "quant_method", method, "are gptq, awq, fp8, mxfp4 and compressed-tensors");
}

}  // namespace spillway
