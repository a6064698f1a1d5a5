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
#include <vector>

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

TEST(GgufTypeTest, OthersAreNamed) {
  EXPECT_EQ(FindGgufType(20), nullptr);
  EXPECT_EQ(GgufTypeName(20), "IQ4_NL");
  EXPECT_EQ(GgufTypeName(12), "Q4_K");
  EXPECT_EQ(GgufTypeName(4'000'000'000), "number 4000000000");
  EXPECT_THAT(ReadGgufTypes(), testing::HasSubstr("Q6_K"));
}

}  // namespace
}  // namespace spillway
