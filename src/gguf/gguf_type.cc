#include "src/gguf/gguf_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/convert/convert.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr int64_t kShort = 32;  // values of a block
constexpr int64_t kLong = 256;  // of a block whose scales are coded too
constexpr int kGroup = 32;      // values that share a scale in the longer ones of it

// Fields of a block, read one after the other.
class Fields {
 public:
  explicit Fields(const std::byte* at) : at_(reinterpret_cast<const uint8_t*>(at)) {}

  const uint8_t* Bytes(int64_t count) { return std::exchange(at_, at_ + count); }

  float Half() {
    uint16_t bits = 0;
    std::memcpy(&bits, Bytes(sizeof(bits)), sizeof(bits));
    return kernels::HalfToFloat(bits);
  }

  uint32_t Word() {
    uint32_t bits = 0;
    std::memcpy(&bits, Bytes(sizeof(bits)), sizeof(bits));
    return bits;
  }

 private:
  const uint8_t* at_;
};

int Low(uint8_t pair) { return pair & 15; }
int High(uint8_t pair) { return pair >> 4; }

// Code `i` of 32 in 16 bytes: the low halves of all, then the high ones.
int Nibble(const uint8_t* pairs, int i) { return i < 16 ? Low(pairs[i]) : High(pairs[i - 16]); }

void DecodeQ4Zero(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = fields.Half();
  const uint8_t* pairs = fields.Bytes(16);
  for (int i = 0; i < kShort; ++i) values[i] = static_cast<float>(Nibble(pairs, i) - 8) * scale;
}

void DecodeQ4One(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = fields.Half();
  const float minimum = fields.Half();
  const uint8_t* pairs = fields.Bytes(16);
  for (int i = 0; i < kShort; ++i)
    values[i] = static_cast<float>(Nibble(pairs, i)) * scale + minimum;
}

int FiveBits(const uint8_t* pairs, uint32_t fifth, int i) {
  return Nibble(pairs, i) | static_cast<int>(fifth >> i & 1) << 4;
}

void DecodeQ5Zero(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = fields.Half();
  const uint32_t fifth = fields.Word();
  const uint8_t* pairs = fields.Bytes(16);
  for (int i = 0; i < kShort; ++i)
    values[i] = static_cast<float>(FiveBits(pairs, fifth, i) - 16) * scale;
}

void DecodeQ5One(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = fields.Half();
  const float minimum = fields.Half();
  const uint32_t fifth = fields.Word();
  const uint8_t* pairs = fields.Bytes(16);
  for (int i = 0; i < kShort; ++i)
    values[i] = static_cast<float>(FiveBits(pairs, fifth, i)) * scale + minimum;
}

void DecodeQ8Zero(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = fields.Half();
  const uint8_t* codes = fields.Bytes(kShort);
  for (int i = 0; i < kShort; ++i)
    values[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
}

// Values of 4 bits without a mantissa's leading zeros, twice what they stand for.
constexpr std::array<float, 16> kTwiceFp4 = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

// Half of 2^(exponent - 127), also where that is denormal.
float HalfPower(uint8_t exponent) {
  const uint32_t bits =
      exponent < 2 ? uint32_t{0x200000} << exponent : static_cast<uint32_t>(exponent - 1) << 23;
  return std::bit_cast<float>(bits);
}

void DecodeMxfp4(const std::byte* block, float* values) {
  Fields fields(block);
  const float scale = HalfPower(*fields.Bytes(1));
  const uint8_t* pairs = fields.Bytes(16);
  for (int i = 0; i < kShort; ++i)
    values[i] = kTwiceFp4[static_cast<std::size_t>(Nibble(pairs, i))] * scale;
}

// Scale and minimum of the groups of a block of Q4_K and Q5_K: 6 bits each in 12 bytes, of the last
// four groups the high 2 bits apart.
class GroupScales {
 public:
  GroupScales(float scale, float minimum, const uint8_t* parts)
      : scale_(scale), minimum_(minimum), parts_(parts) {}

  float Scale(int group) const {
    const int code =
        group < 4 ? parts_[group] & 63 : Low(parts_[group + 4]) | parts_[group - 4] >> 6 << 4;
    return scale_ * static_cast<float>(code);
  }
  float Minimum(int group) const {
    const int code =
        group < 4 ? parts_[group + 4] & 63 : High(parts_[group + 4]) | parts_[group] >> 6 << 4;
    return minimum_ * static_cast<float>(code);
  }

 private:
  float scale_;
  float minimum_;
  const uint8_t* parts_;
};

GroupScales ReadGroupScales(Fields& fields) {
  const float scale = fields.Half();
  const float minimum = fields.Half();
  return {scale, minimum, fields.Bytes(12)};
}

// Code of a group: 32 bytes hold the low halves of one group and the high ones of the next.
int GroupNibble(const uint8_t* pairs, int group, int i) {
  const uint8_t pair = pairs[group / 2 * kGroup + i];
  return group % 2 == 0 ? Low(pair) : High(pair);
}

void DecodeQ4K(const std::byte* block, float* values) {
  Fields fields(block);
  const GroupScales scales = ReadGroupScales(fields);
  const uint8_t* pairs = fields.Bytes(kLong / 2);
  for (int group = 0; group < kLong / kGroup; ++group) {
    const float scale = scales.Scale(group);
    const float minimum = scales.Minimum(group);
    for (int i = 0; i < kGroup; ++i)
      *values++ = scale * static_cast<float>(GroupNibble(pairs, group, i)) - minimum;
  }
}

void DecodeQ5K(const std::byte* block, float* values) {
  Fields fields(block);
  const GroupScales scales = ReadGroupScales(fields);
  const uint8_t* fifth = fields.Bytes(kGroup);
  const uint8_t* pairs = fields.Bytes(kLong / 2);
  for (int group = 0; group < kLong / kGroup; ++group) {
    const float scale = scales.Scale(group);
    const float minimum = scales.Minimum(group);
    for (int i = 0; i < kGroup; ++i) {
      const int code = GroupNibble(pairs, group, i) | (fifth[i] >> group & 1) << 4;
      *values++ = scale * static_cast<float>(code) - minimum;
    }
  }
}

// Halves of 128 values, of each first 32 bytes for the low halves of groups 0 and 1, ...
void DecodeQ6K(const std::byte* block, float* values) {
  Fields fields(block);
  const uint8_t* low = fields.Bytes(kLong / 2);
  const uint8_t* high = fields.Bytes(kLong / 4);
  const uint8_t* scales = fields.Bytes(kLong / 16);
  const float scale = fields.Half();
  for (int i = 0; i < kLong; ++i) {
    const int half = i / 128;
    const int group = i / kGroup % 4;
    const int place = i % kGroup;
    const uint8_t pair = low[half * 64 + group % 2 * kGroup + place];
    const int top = high[half * kGroup + place] >> 2 * group & 3;
    const int code = (group < 2 ? Low(pair) : High(pair)) | top << 4;
    const float step = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    values[i] = step * static_cast<float>(code - 32);
  }
}

// Two bits of value `i` of a block: 32 bytes for each half of 128, group by group from the lowest.
int TwoBits(const uint8_t* fours, int i) {
  return fours[i / 128 * kGroup + i % kGroup] >> 2 * (i / kGroup % 4) & 3;
}

void DecodeQ2K(const std::byte* block, float* values) {
  Fields fields(block);
  const uint8_t* scales = fields.Bytes(kLong / 16);
  const uint8_t* fours = fields.Bytes(kLong / 4);
  const float scale = fields.Half();
  const float minimum = fields.Half();
  for (int i = 0; i < kLong; ++i) {
    const float step = scale * static_cast<float>(Low(scales[i / 16]));
    const float offset = minimum * static_cast<float>(High(scales[i / 16]));
    values[i] = step * static_cast<float>(TwoBits(fours, i)) - offset;
  }
}

// Scale of 16 values in 6 bits: 4 low ones in the first 8 bytes, 2 high ones in the last 4.
int SixBitScale(const uint8_t* parts, int group) {
  const int low = group < 8 ? Low(parts[group]) : High(parts[group - 8]);
  return (low | (parts[8 + group % 4] >> 2 * (group / 4) & 3) << 4) - 32;
}

void DecodeQ3K(const std::byte* block, float* values) {
  Fields fields(block);
  const uint8_t* third = fields.Bytes(kGroup);
  const uint8_t* fours = fields.Bytes(kLong / 4);
  const uint8_t* parts = fields.Bytes(12);
  const float scale = fields.Half();
  for (int i = 0; i < kLong; ++i) {
    const int below = third[i % kGroup] >> i / kGroup & 1 ? 0 : 4;
    const float step = scale * static_cast<float>(SixBitScale(parts, i / 16));
    values[i] = step * static_cast<float>(TwoBits(fours, i) - below);
  }
}

// Types that are read, by their numbers in a file.
const std::vector<std::pair<uint32_t, GgufType>>& Types() {
  static const std::vector<std::pair<uint32_t, GgufType>> types = {
      {0, {"F32", 1, 4, DType::kF32}},
      {1, {"F16", 1, 2, DType::kF16}},
      {30, {"BF16", 1, 2, DType::kBF16}},
      {8, {"Q8_0", kShort, 34, DType::kF32, DecodeQ8Zero}},
      {2, {"Q4_0", kShort, 18, DType::kF32, DecodeQ4Zero}},
      {3, {"Q4_1", kShort, 20, DType::kF32, DecodeQ4One}},
      {6, {"Q5_0", kShort, 22, DType::kF32, DecodeQ5Zero}},
      {7, {"Q5_1", kShort, 24, DType::kF32, DecodeQ5One}},
      {10, {"Q2_K", kLong, 84, DType::kF32, DecodeQ2K}},
      {11, {"Q3_K", kLong, 110, DType::kF32, DecodeQ3K}},
      {12, {"Q4_K", kLong, 144, DType::kF32, DecodeQ4K}},
      {13, {"Q5_K", kLong, 176, DType::kF32, DecodeQ5K}},
      {14, {"Q6_K", kLong, 210, DType::kF32, DecodeQ6K}},
      {39, {"MXFP4", kShort, 17, DType::kF32, DecodeMxfp4}}};
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

}  // namespace spillway
