// Values of every type of codes, to the bit, as the package gguf decodes them (make_types.py).
#include "src/gguf/gguf_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kernels/convert/quantise.h"

namespace spillway {
namespace {

std::vector<std::byte> BytesOf(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + at, hex.data() + at + 2, value, 16);
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(GgufTypeTest, BlocksHaveTheValuesOfTheReference) {
  std::ifstream file(SPILLWAY_SOURCE_DIR "/tests/gguf/types.json");
  const nlohmann::json types = nlohmann::json::parse(file);
  EXPECT_EQ(types.size(), 11U);
  for (const auto& [name, entry] : types.items()) {
    const GgufType* type = FindGgufType(entry["number"].get<uint32_t>());
    ASSERT_NE(type, nullptr) << name;
    EXPECT_EQ(type->name, name);
    const std::vector<std::byte> blocks = BytesOf(entry["blocks"]);
    const std::vector<std::byte> expected = BytesOf(entry["values"]);
    std::vector<float> values(expected.size() / sizeof(float));
    DecodeBlocks(*type, blocks, values);
    std::vector<float> reference(values.size());
    std::memcpy(reference.data(), expected.data(), expected.size());
    EXPECT_EQ(Bits(values), Bits(reference)) << name;
  }
}

// Zeros of either sign are one value: the sum of a group's FMA has no sign to give to one.
TEST(GgufTypeTest, GroupsHoldTheValuesOfTheReference) {
  std::ifstream file(SPILLWAY_SOURCE_DIR "/tests/gguf/types.json");
  const nlohmann::json types = nlohmann::json::parse(file);
  int num_held = 0;
  for (const auto& [name, entry] : types.items()) {
    const GgufType& type = *FindGgufType(entry["number"].get<uint32_t>());
    if (!type.held) continue;
    ++num_held;
    const std::vector<std::byte> blocks = BytesOf(entry["blocks"]);
    std::vector<float> reference(blocks.size() / static_cast<std::size_t>(type.block_bytes) *
                                 static_cast<std::size_t>(type.block_values));
    DecodeBlocks(type, blocks, reference);
    std::vector<std::byte> groups(
        static_cast<std::size_t>(RowBytes(*type.held, std::ssize(reference))));
    EXPECT_TRUE(HoldBlocks(type, blocks, groups)) << name;
    std::vector<float> values(reference.size());
    kernels::DequantiseRow(groups.data(), *type.held, values);
    EXPECT_EQ(values, reference) << name;
    for (std::size_t k = 0; k < values.size(); ++k) {
      ASSERT_EQ(kernels::DequantiseRef(groups.data(), *type.held, static_cast<int64_t>(k)),
                reference[k])
          << name << " " << k;
    }
    EXPECT_EQ(kernels::FindNonFiniteGroup(groups, *type.held), -1) << name;
  }
  EXPECT_EQ(num_held, 9);
}

// A row of 96 ends in half a group.
TEST(GgufTypeTest, ShortBlocksMayEndAGroupEarly) {
  const GgufType& type = *FindGgufType(8);
  std::vector<std::byte> blocks(3 * 34, std::byte{5});
  std::vector<std::byte> groups(static_cast<std::size_t>(RowBytes(DType::kGgufQ8, 96)));
  EXPECT_TRUE(HoldBlocks(type, blocks, groups));
  std::vector<float> reference(96);
  DecodeBlocks(type, blocks, reference);
  std::vector<float> values(96);
  kernels::DequantiseRow(groups.data(), DType::kGgufQ8, values);
  EXPECT_EQ(values, reference);
}

TEST(GgufTypeTest, ScalesWhose32TimesAreBeyondFp16AreNotHeld) {
  const GgufType& type = *FindGgufType(14);
  std::vector<std::byte> block(210, std::byte{1});
  std::vector<std::byte> groups(static_cast<std::size_t>(RowBytes(DType::kGgufK6, 256)));
  for (const auto& [half, is_held] :
       {std::pair<uint16_t, bool>{0x67FF, true}, {0x6800, false}, {0xE800, false}}) {
    std::memcpy(block.data() + 208, &half, sizeof(half));  // 2047, 2048, -2048
    EXPECT_EQ(HoldBlocks(type, block, groups), is_held);
  }
}

TEST(GgufTypeTest, OthersAreNamed) {
  EXPECT_EQ(FindGgufType(20), nullptr);
  EXPECT_EQ(GgufTypeName(20), "IQ4_NL");
  EXPECT_EQ(GgufTypeName(12), "Q4_K");
  EXPECT_EQ(GgufTypeName(4'000'000'000), "number 4000000000");
  EXPECT_THAT(ReadGgufTypes(), testing::HasSubstr("Q6_K"));
}

}  // namespace
}  // namespace spillway
