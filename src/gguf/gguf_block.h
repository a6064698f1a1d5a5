// GgufBlock: the parts of a block of the types of GGUF files whose weights are steps: codes, and
// what they are multiplied with. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway {

// Values of a block, of those whose scales are coded too, and of a part of these.
inline constexpr int64_t kShortBlock = 32;
inline constexpr int64_t kLongBlock = 256;
inline constexpr int64_t kBlockPart = 16;

// A value is scale * (code - middle) + minimum of a short block, and of a long one, with the codes
// of its part of 16, scale * scales * (code - middle) - minimum * minimums; each in fp32 and this
// order, as ggml has it.
struct GgufBlock {
  std::array<uint8_t, kLongBlock> codes;  // of a short block the first kShortBlock
  uint16_t scale = 0;                     // fp16
  uint16_t minimum = 0;                   // fp16; 0: there is none
  int middle = 0;
  // Of long blocks:
  std::array<int8_t, kLongBlock / kBlockPart> scales = {};
  std::array<int8_t, kLongBlock / kBlockPart> minimums = {};
};

using SplitBlock = void (*)(const std::byte* block, GgufBlock& parts);

void SplitQ40(const std::byte* block, GgufBlock& parts);
void SplitQ41(const std::byte* block, GgufBlock& parts);
void SplitQ50(const std::byte* block, GgufBlock& parts);
void SplitQ51(const std::byte* block, GgufBlock& parts);
void SplitQ80(const std::byte* block, GgufBlock& parts);
void SplitQ2K(const std::byte* block, GgufBlock& parts);
void SplitQ3K(const std::byte* block, GgufBlock& parts);
void SplitQ4K(const std::byte* block, GgufBlock& parts);
void SplitQ5K(const std::byte* block, GgufBlock& parts);
void SplitQ6K(const std::byte* block, GgufBlock& parts);

}  // namespace spillway
