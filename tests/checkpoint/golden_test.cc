// Files that torch, safetensors and numpy wrote (data/make_data.py): the same six tensors in every
// container.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "src/verbs/describe.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::Bytes;
using testing::ExpectOpenError;

const std::filesystem::path kData = SPILLWAY_SOURCE_DIR "/tests/checkpoint/data";

struct GoldenTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// Tensors in make_data.py's order, which gives each its number.
const std::vector<GoldenTensor> kTensors = {
    {"decoder.embed_tokens.weight", {16, 8}}, {"decoder.embed_positions.weight", {12, 8}},
    {"decoder.layer_norm.weight", {8}},       {"decoder.layer_norm.bias", {8}},
    {"decoder.layers.0.fc1.weight", {32, 8}}, {"decoder.layers.0.fc1.bias", {32}},
};

// Bytes of a value that has few enough bits for all three types.
std::string Encoded(float value, DType dtype) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kF32) return Bytes(bits);
  if (dtype == DType::kBF16) return Bytes(static_cast<uint16_t>(bits >> 16));
  const uint32_t sign = bits >> 16 & 0x8000;
  if (value == 0) return Bytes(static_cast<uint16_t>(sign));
  const uint32_t exponent = (bits >> 23 & 0xFF) - 127 + 15;
  return Bytes(static_cast<uint16_t>(sign | exponent << 10 | (bits >> 13 & 0x3FF)));
}

std::string GoldenBytes(int64_t number, const GoldenTensor& tensor, DType dtype) {
  int64_t count = 1;
  for (const int64_t size : tensor.shape) count *= size;
  std::string bytes;
  for (int64_t at = 0; at < count; ++at) {
    bytes += Encoded(static_cast<float>(at % 61 - 30) / 8 + static_cast<float>(number), dtype);
  }
  return bytes;
}

struct GoldenFolder {
  const char* name;
  DType dtype;
  const char* format;
};

class GoldenTest : public ::testing::TestWithParam<GoldenFolder> {};

TEST_P(GoldenTest, HoldsTheSameTensors) {
  const auto checkpoint = OpenCheckpoint(kData / GetParam().name);
  EXPECT_EQ(checkpoint->format(), GetParam().format);
  for (std::size_t number = 0; number < kTensors.size(); ++number) {
    const int64_t index = checkpoint->Find(kTensors[number].name);
    ASSERT_GE(index, 0) << kTensors[number].name;
    const CheckpointTensor& tensor = checkpoint->tensors()[static_cast<std::size_t>(index)];
    EXPECT_EQ(tensor.dtype, GetParam().dtype) << tensor.name;
    EXPECT_EQ(tensor.shape, kTensors[number].shape);
    EXPECT_EQ(testing::ReadAll(*checkpoint, tensor.name),
              GoldenBytes(static_cast<int64_t>(number), kTensors[number], tensor.dtype))
        << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Containers, GoldenTest,
    ::testing::Values(GoldenFolder{"safetensors_fp16", DType::kF16, "safetensors"},
                      GoldenFolder{"safetensors_bf16", DType::kBF16, "safetensors"},
                      GoldenFolder{"safetensors_fp32", DType::kF32, "safetensors"},
                      GoldenFolder{"bin_fp16", DType::kF16, "torch zip"},
                      GoldenFolder{"bin_bf16", DType::kBF16, "torch zip"},
                      GoldenFolder{"bin_fp32", DType::kF32, "torch zip"},
                      GoldenFolder{"bin_tied", DType::kF16, "torch zip"},
                      GoldenFolder{"bin_protocol4", DType::kF16, "torch zip"},
                      GoldenFolder{"bin_views", DType::kF16, "torch zip"},
                      GoldenFolder{"bin_shards", DType::kF16, "torch zip"},
                      GoldenFolder{"bin_legacy", DType::kF16, "torch before 1.6"},
                      GoldenFolder{"numpy_fp16", DType::kF16, "numpy folder"}),
    [](const auto& info) { return info.param.name; });

TEST(GoldenViewTest, ATransposedTensorIsReadByItsOwnRows) {
  const std::string plain = GoldenBytes(4, kTensors[4], DType::kF16);
  std::string expected;
  for (std::size_t row = 0; row < 8; ++row) {
    for (std::size_t col = 0; col < 32; ++col) expected += plain.substr(2 * (col * 8 + row), 2);
  }
  const auto checkpoint = OpenCheckpoint(kData / "bin_transposed");
  EXPECT_EQ(testing::ReadAll(*checkpoint, kTensors[4].name), expected);
}

TEST(GoldenBadTest, WhatTorchWritesAndWeRefuse) {
  ExpectOpenError(ErrorCode::kUnsafe, "posix.system", kData / "bad_attack");
  ExpectOpenError(ErrorCode::kUnsafe, "posix.system", kData / "bad_bare_attack");
  EXPECT_FALSE(std::filesystem::exists("/tmp/spillway_was_attacked"));
}

TEST(DescribeTest, ShowsFormatTensorsAndShape) {
  const std::string text = DescribeCheckpoint(SPILLWAY_SOURCE_DIR "/examples/tales-opt-8m");
  for (const char* part :
       {"format      safetensors", "tensors     132 (132 fp16)", "15783936 bytes",
        "7891968 parameters", "blocks      8 of hidden size 256, 4 heads of 64, ffn 1024 relu",
        "every tensor of the model is there", "... 122 more"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(DescribeTest, ShowsWhatAFamilyHasOfItsOwn) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> models = {
      {"granite-tied",
       {"scores times 0.2\n", "positions   336, rotary (theta 10000000)\n",
        "logits      times 1.429\n"}},
      {"olmo3-typed",
       {"2 heads of keys, norms of all heads together, a window of 9 tokens in 1 layer\n",
        "rotary (theta 20000, scaled; theta 10000 in windowed layers)\n",
        "norms       after each branch"}},
      {"smollm3-plain", {"rotary (theta 5000000), none in 1 layer\n"}},
      {"glm4-plain", {"8 of 16 elements of a head", "before the block and after each branch"}},
      {"granite4-unturned", {"positions   336, known to no layer\n"}},
      {"gemma2-capped", {"scores capped at 2\n"}},
      {"gemma2-windowed-capped", {"logits      capped at "}}};
  for (const auto& [name, parts] : models) {
    const std::string text = DescribeCheckpoint(SPILLWAY_SOURCE_DIR "/tests/parity/models/" + name);
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << part << text;
  }
}

TEST(DescribeTest, SaysWhyAModelIsNotUsable) {
  const std::string text = DescribeCheckpoint(kData / "bin_fp32");
  EXPECT_NE(text.find("6 (6 fp32)"), std::string::npos) << text;
  EXPECT_NE(text.find("not usable  E-MODEL-MISSING: " + (kData / "bin_fp32").string() + ": has no"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace spillway
