// Index arithmetic of packed groups (kernels/convert/quantise.h) in products of mma.m16n8k16: the
// weights that a lane of a warp unpacks, and the places of the x that they are multiplied with. A
// are 16 matrix rows, B are 8 rows of x; a group is 4 steps of 16 columns. constexpr, so that
// kernels and host tests run the same code. Pure functions; any thread.
//
// Lane 4 g + t holds in each step columns 2 t + 8 half and the one behind it, half = 0 and 1, of
// matrix rows g and g + 8 and of row g of x (mma_index.h). A product sums over all columns, so that
// weights may be assigned to columns in any order as long as x has the same. The order lets a lane
// read whole words of codes and exchange nothing: at 4 bits a word's neighbours are 8 weights
// apart, and columns are weights in their order; at 8 bits a lane's four columns are a word.
#pragma once

#include <cstdint>

#include "kernels/convert/quantise.h"
#include "spillway/dtype.h"

namespace spillway::kernels {

inline constexpr int kGroupSteps = 4;
// Of most types the minimum in the lower half, the step in the upper; quantise.h says what else.
constexpr int GroupHeadWords(DType dtype) { return static_cast<int>(GroupHeadBytes(dtype)) / 4; }
inline constexpr int kXGroupWords = 32;  // of a group of one row of x: 64 halfs

constexpr int GroupWords(DType dtype) { return static_cast<int>(GroupBytes(dtype)) / 4; }

// Groups of a row of `cols` weights. An int, since 64-bit indices cost registers.
constexpr int NumGroups(int64_t cols) { return static_cast<int>(DivideUp(cols, kGroupWeights)); }

// Words of codes that a lane reads of a group of one matrix row; `quad_lane` is lane % 4. At 6 bits
// the third one is the upper bits of what the other two have.
constexpr int LaneWords(DType dtype) { return CodeBits(dtype) / 2; }
constexpr int LaneWord(DType dtype, int quad_lane, int i) {
  if (CodeBits(dtype) == 8) return 4 * i + quad_lane;
  return i < 2 ? 2 * quad_lane + i : 8 + quad_lane;
}

// The weight of the group that is column 2 quad_lane + 8 half of a step; the next one is the column
// behind it.
constexpr int ColumnWeight(DType dtype, int step, int half, int quad_lane) {
  return 16 * step + (CodeBits(dtype) == 8 ? 4 * quad_lane + 2 * half : 8 * half + 2 * quad_lane);
}

// Vector of x that holds a lane's columns of steps 2 pair and 2 pair + 1, among the 8 vectors of 16
// bytes of a row and a group. Odd rows have the two halves of a group swapped: the 8 lanes that
// shared memory serves at a time then read different banks.
constexpr int XVector(int64_t row, int pair, int quad_lane) {
  return 4 * static_cast<int>((pair + row) % 2) + quad_lane;
}

// The word among the kXGroupWords that holds the two columns of ColumnWeight.
constexpr int XWord(int64_t row, int step, int half, int quad_lane) {
  return 4 * XVector(row, step / 2, quad_lane) + 2 * (step % 2) + half;
}

// Two codes as fp16 without a conversion: 0x6400 is 1024, whose last mantissa bit stands for 1.
inline constexpr uint32_t kBias = 0x64006400;  // 1024, 1024
inline constexpr uint32_t kSixteenth = 0x2C002C00;
inline constexpr uint32_t kMinus64 = 0xD400D400;  // 1024 / 16
inline constexpr uint32_t kLowNibbles = 0x000F000F;
inline constexpr uint32_t kHighNibbles = 0x00F000F0;

// Bits of two codes of 6 bits in two half-words, shifted down by HighShift.
inline constexpr uint32_t kHighPairs = 0x00030003;
constexpr int HighShift(int step, int half) { return 4 * (step / 2 + step % 2 * 2) + 2 * half; }

// Parts of two codes of kMxfp4.
inline constexpr uint32_t kMagnitudes = 0x00070007;
inline constexpr uint32_t kSigns = 0x00080008;
inline constexpr uint32_t kTwoTo14 = 0x74007400;  // 16384, 16384

// Parts of two numbers of kFp8, each in the lower byte of a half.
inline constexpr uint32_t kFp8Magnitudes = 0x007F007F;
inline constexpr uint32_t kFp8Signs = 0x00800080;

// Scales of published codes are taken times 256, which few fp16 are too small for, and what they
// scale is divided by it: of kFp8 numbers that is what their bits are as fp16. Scales over 255 are
// infinite then.
inline constexpr float kScaleUp = 256.0F;
constexpr float PerScaleUp(float code) { return code / kScaleUp; }

// Byte selectors of prmt (__byte_perm). At 4 bits: byte {0, 2, 1, 3}[step] of a lane's first word
// to the lower half, of its second word to the upper one; its low nibbles are the columns of half
// 0, its high ones those of half 1. At 8 bits: two bytes of word `step`, each with a byte of kBias
// above it.
constexpr uint32_t NibbleSelector(int step) {
  const auto byte = static_cast<uint32_t>(step / 2 + step % 2 * 2);
  return byte * 0x0011 + (byte + 4) * 0x1100;
}
constexpr uint32_t ByteSelector(int half) { return half == 0 ? 0x5150 : 0x5352; }

// Place of the code of weight `at` in its group: bits from `shift` of a word.
struct CodePlace {
  int word = 0;
  int shift = 0;
};
constexpr CodePlace PlaceOfCode(DType dtype, int at) {
  if (CodeBits(dtype) == 8) return {at / 4, at % 4 * 8};
  const int eighth = at / 8;  // kNibbleBegin swaps its two upper bits
  return {at % 8, 4 * (eighth % 2 + eighth / 2 % 2 * 4 + eighth / 4 * 2)};
}

// The code of weight `at` from the words of a group's codes; all of the type but numbers of kFp8
// and kMxfp4 count steps.
constexpr uint32_t CodeOf(DType dtype, const uint32_t* words, int at) {
  const CodePlace place = PlaceOfCode(dtype, at);
  if (CodeBits(dtype) == 8) return words[place.word] >> place.shift & 0xFF;
  const uint32_t low = words[place.word] >> place.shift & 0xF;
  if (CodeBits(dtype) == 4) return low;
  const uint32_t highs = words[8 + place.word / 2] >> (place.word % 2 * 16 + place.shift / 2);
  return low | (highs & 3) << 4;
}

// A row's groups are summed in this many parts, each from 0 in their order, and the parts are added
// in theirs: with few rows each part is a warp's work, and with more rows the sums are the same.
inline constexpr int kSumParts = 8;

constexpr int PartBegin(int part, int groups) { return groups * part / kSumParts; }

// End of the part that `group` belongs to.
constexpr int PartEndOf(int group, int groups) {
  return PartBegin((kSumParts * (group + 1) + groups - 1) / groups, groups);
}

}  // namespace spillway::kernels
