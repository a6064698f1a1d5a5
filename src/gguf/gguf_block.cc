#include "src/gguf/gguf_block.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace spillway {
namespace {

constexpr int kGroup = 32;  // values that lie together in long blocks

// Fields of a block, read one after the other.
class Fields {
 public:
  explicit Fields(const std::byte* at) : at_(reinterpret_cast<const uint8_t*>(at)) {}

  const uint8_t* Bytes(int64_t count) { return std::exchange(at_, at_ + count); }

  uint16_t Half() {
    uint16_t bits = 0;
    std::memcpy(&bits, Bytes(sizeof(bits)), sizeof(bits));
    return bits;
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

// Fills codes [0, count) with those that `code_of` gives of an index.
template <typename CodeOf>
void FillCodes(int64_t count, GgufBlock& parts, CodeOf code_of) {
  for (int i = 0; i < count; ++i)
    parts.codes[static_cast<std::size_t>(i)] = static_cast<uint8_t>(code_of(i));
}

// 32 codes in 16 bytes: the low halves of all, then the high ones.
void FillNibbles(Fields& fields, GgufBlock& parts) {
  const uint8_t* pairs = fields.Bytes(16);
  FillCodes(kShortBlock, parts,
            [&](int i) { return i < 16 ? Low(pairs[i]) : High(pairs[i - 16]); });
}

void FillFiveBits(uint32_t fifth, Fields& fields, GgufBlock& parts) {
  FillNibbles(fields, parts);
  for (std::size_t i = 0; i < kShortBlock; ++i)
    parts.codes[i] = static_cast<uint8_t>(parts.codes[i] | (fifth >> i & 1) << 4);
}

// Scale and minimum of each 32 of Q4_K and Q5_K: 6 bits each in 12 bytes, of the last four the high
// 2 bits apart.
void FillGroupScales(Fields& fields, GgufBlock& parts) {
  parts.scale = fields.Half();
  parts.minimum = fields.Half();
  const uint8_t* of = fields.Bytes(12);
  for (std::size_t part = 0; part < parts.scales.size(); ++part) {
    const std::size_t group = part / 2;
    const bool first = group < 4;
    const int scale = first ? of[group] & 63 : Low(of[group + 4]) | of[group - 4] >> 6 << 4;
    const int minimum = first ? of[group + 4] & 63 : High(of[group + 4]) | of[group] >> 6 << 4;
    parts.scales[part] = static_cast<int8_t>(scale);
    parts.minimums[part] = static_cast<int8_t>(minimum);
  }
}

// Code `i` of Q4_K: 32 bytes hold the low halves of one group and the high ones of the next.
int GroupNibble(const uint8_t* pairs, int i) {
  const int group = i / kGroup;
  const uint8_t pair = pairs[group / 2 * kGroup + i % kGroup];
  return group % 2 == 0 ? Low(pair) : High(pair);
}

// Two bits of value `i`: 32 bytes for each half of 128, group by group from the lowest.
int TwoBits(const uint8_t* fours, int i) {
  return fours[i / 128 * kGroup + i % kGroup] >> 2 * (i / kGroup % 4) & 3;
}

// Scale of 16 values in 6 bits: 4 low ones in the first 8 bytes, 2 high ones in the last 4.
int SixBitScale(const uint8_t* of, std::size_t part) {
  const int low = part < 8 ? Low(of[part]) : High(of[part - 8]);
  return (low | (of[8 + part % 4] >> 2 * (part / 4) & 3) << 4) - 32;
}

}  // namespace

void SplitQ40(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  parts.middle = 8;
  parts.scale = fields.Half();
  FillNibbles(fields, parts);
}

void SplitQ41(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  parts.scale = fields.Half();
  parts.minimum = fields.Half();
  FillNibbles(fields, parts);
}

void SplitQ50(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  parts.middle = 16;
  parts.scale = fields.Half();
  FillFiveBits(fields.Word(), fields, parts);
}

void SplitQ51(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  parts.scale = fields.Half();
  parts.minimum = fields.Half();
  FillFiveBits(fields.Word(), fields, parts);
}

void SplitQ80(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  parts.middle = 128;
  parts.scale = fields.Half();
  const uint8_t* codes = fields.Bytes(kShortBlock);
  FillCodes(kShortBlock, parts, [&](int i) { return codes[i] ^ 128; });
}

void SplitQ2K(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  const uint8_t* scales = fields.Bytes(kLongBlock / kBlockPart);
  const uint8_t* fours = fields.Bytes(kLongBlock / 4);
  parts.scale = fields.Half();
  parts.minimum = fields.Half();
  for (std::size_t part = 0; part < parts.scales.size(); ++part) {
    parts.scales[part] = static_cast<int8_t>(Low(scales[part]));
    parts.minimums[part] = static_cast<int8_t>(High(scales[part]));
  }
  FillCodes(kLongBlock, parts, [&](int i) { return TwoBits(fours, i); });
}

void SplitQ3K(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  const uint8_t* third = fields.Bytes(kGroup);
  const uint8_t* fours = fields.Bytes(kLongBlock / 4);
  const uint8_t* scales = fields.Bytes(12);
  parts.middle = 4;
  parts.scale = fields.Half();
  for (std::size_t part = 0; part < parts.scales.size(); ++part)
    parts.scales[part] = static_cast<int8_t>(SixBitScale(scales, part));
  FillCodes(kLongBlock, parts,
            [&](int i) { return TwoBits(fours, i) | (third[i % kGroup] >> i / kGroup & 1) << 2; });
}

void SplitQ4K(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  FillGroupScales(fields, parts);
  const uint8_t* pairs = fields.Bytes(kLongBlock / 2);
  FillCodes(kLongBlock, parts, [&](int i) { return GroupNibble(pairs, i); });
}

void SplitQ5K(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  FillGroupScales(fields, parts);
  const uint8_t* fifth = fields.Bytes(kGroup);
  const uint8_t* pairs = fields.Bytes(kLongBlock / 2);
  FillCodes(kLongBlock, parts, [&](int i) {
    return GroupNibble(pairs, i) | (fifth[i % kGroup] >> i / kGroup & 1) << 4;
  });
}

// Halves of 128 values, of each first 32 bytes for the low halves of groups 0 and 1, ...
void SplitQ6K(const std::byte* block, GgufBlock& parts) {
  Fields fields(block);
  const uint8_t* low = fields.Bytes(kLongBlock / 2);
  const uint8_t* high = fields.Bytes(kLongBlock / 4);
  const uint8_t* scales = fields.Bytes(kLongBlock / kBlockPart);
  parts.middle = 32;
  parts.scale = fields.Half();
  std::memcpy(parts.scales.data(), scales, parts.scales.size());
  FillCodes(kLongBlock, parts, [&](int i) {
    const int half = i / 128;
    const int group = i / kGroup % 4;
    const uint8_t pair = low[half * 64 + group % 2 * kGroup + i % kGroup];
    const int top = high[half * kGroup + i % kGroup] >> 2 * group & 3;
    return (group < 2 ? Low(pair) : High(pair)) | top << 4;
  });
}

}  // namespace spillway
