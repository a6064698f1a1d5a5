#include "src/gguf/gguf_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/convert/quantise.h"
#include "spillway/error.h"

namespace spillway {
namespace {

// Half of 2^(exponent - 127), also where that is denormal.
float HalfPower(uint8_t exponent) {
  const uint32_t bits =
      exponent < 2 ? uint32_t{0x200000} << exponent : static_cast<uint32_t>(exponent - 1) << 23;
  return std::bit_cast<float>(bits);
}

void DecodeMxfp4(const std::byte* block, float* values) {
  const float scale = HalfPower(std::to_integer<uint8_t>(block[0]));
  for (int i = 0; i < kShortBlock; ++i) {
    const auto pair = std::to_integer<std::size_t>(block[1 + i % 16]);
    values[i] = static_cast<float>(kernels::kFp4Doubles[i < 16 ? pair & 15 : pair >> 4]) * scale;
  }
}

template <SplitBlock kSplit, int64_t kValues>
void DecodeSteps(const std::byte* block, float* values) {
  GgufBlock parts;
  kSplit(block, parts);
  const float scale = kernels::HalfToFloat(parts.scale);
  const float minimum = kernels::HalfToFloat(parts.minimum);
  for (std::size_t i = 0; i < kValues; ++i) {
    float step = scale;
    float offset = minimum;
    if constexpr (kValues == kLongBlock) {
      step *= static_cast<float>(parts.scales[i / kBlockPart]);
      offset *= -static_cast<float>(parts.minimums[i / kBlockPart]);
    }
    const float value = static_cast<float>(parts.codes[i] - parts.middle) * step;
    values[i] = parts.middle > 0 ? value : value + offset;
  }
}

template <SplitBlock kSplit, int64_t kValues>
constexpr GgufType Steps(std::string_view name, int64_t bytes, std::optional<DType> held) {
  return {name, kValues, bytes, DType::kF32, DecodeSteps<kSplit, kValues>, held, kSplit};
}

// Types that are read, by their numbers in a file.
const std::vector<std::pair<uint32_t, GgufType>>& Types() {
  static const std::vector<std::pair<uint32_t, GgufType>> types = {
      {0, {"F32", 1, 4, DType::kF32}},
      {1, {"F16", 1, 2, DType::kF16}},
      {30, {"BF16", 1, 2, DType::kBF16}},
      {8, Steps<SplitQ80, kShortBlock>("Q8_0", 34, DType::kGgufQ8)},
      {2, Steps<SplitQ40, kShortBlock>("Q4_0", 18, DType::kGgufQ4)},
      {3, Steps<SplitQ41, kShortBlock>("Q4_1", 20, DType::kGgufM4)},
      {6, Steps<SplitQ50, kShortBlock>("Q5_0", 22, DType::kGgufQ8)},
      {7, Steps<SplitQ51, kShortBlock>("Q5_1", 24, std::nullopt)},
      {10, Steps<SplitQ2K, kLongBlock>("Q2_K", 84, DType::kGgufK6)},
      {11, Steps<SplitQ3K, kLongBlock>("Q3_K", 110, DType::kGgufK6)},
      {12, Steps<SplitQ4K, kLongBlock>("Q4_K", 144, DType::kGgufK4)},
      {13, Steps<SplitQ5K, kLongBlock>("Q5_K", 176, DType::kGgufK6)},
      {14, Steps<SplitQ6K, kLongBlock>("Q6_K", 210, DType::kGgufK6)},
      {39, {"MXFP4", kShortBlock, 17, DType::kF32, DecodeMxfp4}}};
  return types;
}

// Names of types that are not read.
constexpr std::array<std::pair<uint32_t, std::string_view>, 20> kOtherTypes = {
    {{9, "Q8_1"},   {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
     {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"},   {22, "IQ2_S"},  {23, "IQ4_XS"},
     {24, "I8"},    {25, "I16"},    {26, "I32"},     {27, "I64"},    {28, "F64"},
     {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {40, "NVFP4"},  {41, "Q1_0"}}};

}  // namespace

const GgufType* FindGgufType(uint32_t number) {
  for (const auto& [known, type] : Types()) {
    if (known == number) return &type;
  }
  return nullptr;
}

std::string GgufTypeName(uint32_t number) {
  if (const GgufType* type = FindGgufType(number)) return std::string(type->name);
  for (const auto& [known, name] : kOtherTypes) {
    if (known == number) return std::string(name);
  }
  return fmt::format("number {}", number);
}

std::string ReadGgufTypes() {
  std::vector<std::string_view> names;
  for (const auto& [number, type] : Types()) names.push_back(type.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void DecodeBlocks(const GgufType& type, std::span<const std::byte> blocks,
                  std::span<float> values) {
  const int64_t count = static_cast<int64_t>(blocks.size()) / type.block_bytes;
  SPILLWAY_CHECK(static_cast<int64_t>(values.size()) == count * type.block_values);
  for (int64_t block = 0; block < count; ++block)
    type.decode(blocks.data() + block * type.block_bytes,
                values.data() + block * type.block_values);
}

namespace {

// Parts of the 64 weights of a group, from value `begin` of a block on, or of two blocks of 32.
struct GroupParts {
  std::array<std::byte, 12> head = {};
  std::array<uint8_t, kGroupWeights> codes = {};

  void PutHalf(std::size_t at, uint16_t half) {
    std::memcpy(head.data() + at, &half, sizeof(half));
  }
};

// Scale, minimum and codes of half `half` of a group, counted from the held type's own middle.
void AddShort(const GgufBlock& block, DType held, std::size_t half, GroupParts& group) {
  const bool has_minimum = kernels::HasTwoMinimums(held);
  const auto more = has_minimum ? 0 : kernels::MiddleCode(held) - block.middle;
  const std::size_t at = half * sizeof(uint16_t);
  group.PutHalf(at, block.scale);
  if (has_minimum) group.PutHalf(kernels::kMinimumsAt + at, block.minimum);
  for (std::size_t i = 0; i < kShortBlock; ++i)
    group.codes[half * kShortBlock + i] = static_cast<uint8_t>(block.codes[i] + more);
}

// Codes that are counted from a middle have minimums that are it times their scales.
GroupParts PartsOf(const GgufBlock& block, DType held, std::size_t begin) {
  GroupParts group;
  group.PutHalf(0, block.scale);
  const float middle = kernels::HalfToFloat(block.scale) * static_cast<float>(block.middle);
  group.PutHalf(2, block.middle == 0 ? block.minimum : kernels::FloatToHalf(middle));
  const auto count = static_cast<std::size_t>(kernels::NumCodedScales(held));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t part = (begin + i * kGroupWeights / count) / kBlockPart;
    const auto at = static_cast<std::size_t>(kernels::kCodedScalesAt) + i;
    group.head[at] = static_cast<std::byte>(block.scales[part]);
    group.head[at + count] =
        static_cast<std::byte>(block.middle == 0 ? block.minimums[part] : block.scales[part]);
  }
  std::copy_n(block.codes.begin() + static_cast<std::ptrdiff_t>(begin), kGroupWeights,
              group.codes.begin());
  return group;
}

void Pack(const GroupParts& parts, DType held, std::span<std::byte> group) {
  const auto head = std::span(parts.head).first(static_cast<std::size_t>(GroupHeadBytes(held)));
  kernels::PackGroup(head, parts.codes, held, group);
}

bool HasSmallMinimums(const GgufBlock& block) {
  constexpr float kLargestHalf = 65504.0F;
  const float scale = std::abs(kernels::HalfToFloat(block.scale));
  return !std::isfinite(scale) || scale * static_cast<float>(block.middle) <= kLargestHalf;
}

}  // namespace

bool HoldBlocks(const GgufType& type, std::span<const std::byte> blocks,
                std::span<std::byte> groups) {
  const DType held = type.held.value();
  const auto block_bytes = static_cast<std::size_t>(type.block_bytes);
  const auto group_bytes = static_cast<std::size_t>(GroupBytes(held));
  GgufBlock block;
  while (!groups.empty()) {
    GroupParts parts;
    if (type.block_values == kLongBlock) {
      type.split(blocks.data(), block);
      if (!HasSmallMinimums(block)) return false;
      for (std::size_t begin = 0; begin < kLongBlock; begin += kGroupWeights) {
        Pack(PartsOf(block, held, begin), held, groups.first(group_bytes));
        groups = groups.subspan(group_bytes);
      }
      blocks = blocks.subspan(block_bytes);
      continue;
    }
    for (std::size_t half = 0; half < 2 && !blocks.empty(); ++half) {
      type.split(blocks.data(), block);
      AddShort(block, held, half, parts);
      blocks = blocks.subspan(block_bytes);
    }
    Pack(parts, held, groups.first(group_bytes));
    groups = groups.subspan(group_bytes);
  }
  return true;
}

}  // namespace spillway
