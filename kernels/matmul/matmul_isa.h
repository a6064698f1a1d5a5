// Interface between matmul_cpu.cc and the instruction sets: one tile of the output at a time.
// Private to the kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace spillway::kernels {

// Rows [row_begin, row_begin + num_rows) x outputs [out_begin, out_begin + num_outs) of one piece.
// No defaults: the files with instruction set flags only read it.
struct MatmulTile {
  const float* x;
  int64_t x_stride;
  int64_t in;
  Activation activation;
  const MatmulPiece* piece;
  int64_t row_begin;
  int64_t num_rows;
  int64_t out_begin;
  int64_t num_outs;
  int64_t next_out_begin;   // outputs that this worker likely computes next, for prefetch: maybe
                            // past the piece, or these again
  std::byte* scratch;       // of this worker, 64-byte aligned
  const std::byte* packed;  // all rows of x as a PackTask's function made them; null: x as it is,
                            // which few rows for AVX2 read in any case
  int64_t total_rows;       // of the call, they fix the packed layout
};

// A tile's limits, and the scratch each worker needs for it.
constexpr int64_t kSimdTileRows = 128;  // x block: 128 rows * 1024 k * 4 B = 512 KiB of L2
constexpr int64_t kSimdTileOuts = 48;
constexpr int64_t kSimdBlockK = 1024;  // the element's sum is made of blocks of this many k
constexpr int64_t kSimdMaxPanel = 6;
constexpr int64_t kSimdScratchBytes =
    (kSimdMaxPanel * kSimdBlockK + kSimdTileRows * kSimdTileOuts) * 4;  // 48 KiB

// AVX2 copies x: a block of k of all rows, then the next block. Rows as far apart as in the model
// share the sets of a cache: of an L2 of 512 KiB (Zen 3) a half was of use for 2,048 columns, an
// eighth for 8,192.
constexpr int64_t kSimdUnpackedRows = 24;  // up to so many are read as they are: they fit anyway
constexpr int64_t kSimdPackRows = 8;       // of a PackTask
constexpr int64_t kAvx2TileRows = 60;      // a block of x of 244 KiB
static_assert(kAvx2TileRows <= kSimdTileRows);
constexpr int64_t SimdBlocksK(int64_t in) { return DivideUp(in, kSimdBlockK); }
// Floats from row to row: an odd number of lines, so that rows spread over all sets.
constexpr int64_t SimdPackedRow(int64_t in) {
  return RoundUp(in < kSimdBlockK ? in : kSimdBlockK, 32) + 16;
}
static_assert(SimdPackedRow(1) % 32 == 16 && SimdPackedRow(1000) % 32 == 16);
constexpr int64_t SimdPackedBytes(int64_t rows, int64_t in) {
  return SimdBlocksK(in) * rows * SimdPackedRow(in) * 4;
}

void MatmulTilePortable(const MatmulTile& tile);
void MatmulTileAvx2(const MatmulTile& tile);
void MatmulTileAvx512(const MatmulTile& tile);

constexpr int64_t kAmxTileRows = 64;
constexpr int64_t kAmxTileOuts = 512;
constexpr int64_t kAmxOutGrain = 64;
constexpr int64_t kAmxLeastOutGrain = 32;
constexpr int64_t kAmxBlockBytes =
    832 << 10;  // x of a block of k, in an L2 of 2 MiB with the sums and the weights
constexpr int64_t kAmxRingSteps = 4;
constexpr int64_t kAmxRingBytes = 2 * kAmxRingSteps * 2 * 1024;  // of 32 k; groups have two
constexpr int64_t kAmxScratchBytes =
    kAmxRingBytes + 8192 + kAmxTileRows * kAmxTileOuts * 4;  // 152 KiB
// Limits of a tile of more than kAmxTileRows rows, which rounded x may have: its scratch holds two
// panels of weights for 512 k.
constexpr int64_t kAmxManyRows = 256;
constexpr int64_t kAmxManyRowsOuts = 256;
constexpr int64_t kAmxPairBytes = 32 << 10;
constexpr int64_t kAmxManyRowsScratchBytes =
    kAmxPairBytes + 4096 + kAmxManyRows * kAmxManyRowsOuts * 4;  // 292 KiB
static_assert(kAmxManyRowsScratchBytes >= kAmxScratchBytes);

constexpr int64_t AmxStepsK(int64_t in) { return (in + 31) / 32; }
constexpr int64_t AmxBlockRows(int64_t rows) { return rows < 16 ? rows : 16; }
constexpr int64_t AmxNumBlocks(int64_t rows) { return rows < 16 ? 1 : (rows + 15) / 16; }
// Form of x in the products: the sum of two bf16, or rounded to one.
enum class AmxX { kSplit, kRounded };
constexpr int64_t AmxXParts(AmxX x) { return x == AmxX::kSplit ? 2 : 1; }
// One block's step: the parts of x as [16 pairs of k][block rows][2] bf16.
constexpr int64_t AmxStepBytes(int64_t rows, AmxX x) {
  return AmxXParts(x) * 16 * AmxBlockRows(rows) * 4;
}
constexpr int64_t AmxPackedBytes(int64_t rows, int64_t in, AmxX x) {
  return AmxNumBlocks(rows) * AmxStepsK(in) * AmxStepBytes(rows, x);
}

// Bytes that x has where it meets codes: two, or one of RoundsToBytes.
enum class CodedX { kTwoBytes, kOneByte };
constexpr int64_t XBytes(CodedX x) { return x == CodedX::kTwoBytes ? 2 : 1; }

// AMX packs x for weights that it multiplies as codes by groups of 64 k: a tile of each byte for 16
// rows, or one of all for up to 8, as [16 words of 4 k][columns], then a scale and a total of each
// column.
constexpr int64_t AmxGroupColumns(int64_t rows) { return rows <= 8 ? rows : 16; }
constexpr int64_t AmxGroupBlocks(int64_t rows) { return DivideUp(rows, 16); }
constexpr int64_t NumGroups(int64_t in) { return DivideUp(in, kGroupWeights); }
constexpr int64_t AmxGroupXBytes(int64_t rows, CodedX x) {
  return AmxGroupColumns(rows) * (XBytes(x) * kGroupWeights + 2 * 4);
}
constexpr int64_t AmxGroupPackedBytes(int64_t rows, int64_t in, CodedX x) {
  return AmxGroupBlocks(rows) * NumGroups(in) * AmxGroupXBytes(rows, x);
}

// VNNI packs x by groups too, up to 8 rows side by side: 64 high bytes and 64 low ones of each, or
// 64, then their scales and their totals, of each part of a group that has steps of its own; whole
// lines.
constexpr int64_t kVnniBlockRows = 8;
constexpr int64_t VnniBlockRows(int64_t rows) {
  return rows < kVnniBlockRows ? rows : kVnniBlockRows;
}
constexpr int64_t VnniNumBlocks(int64_t rows) { return DivideUp(rows, kVnniBlockRows); }
constexpr int64_t kVnniMostParts = 4;
constexpr int64_t VnniGroupXBytes(int64_t rows, int64_t parts, CodedX x) {
  return RoundUp(VnniBlockRows(rows) * (XBytes(x) * kGroupWeights + (1 + parts) * 4), 64);
}
constexpr int64_t VnniPackedBytes(int64_t rows, int64_t in, CodedX x) {  // for any type
  return VnniNumBlocks(rows) * NumGroups(in) * VnniGroupXBytes(rows, kVnniMostParts, x);
}

// AVX512-BF16 rounds x and packs it by steps of 32 k, up to 4 rows side by side, a line each.
constexpr int64_t kBf16GroupRows = 4;
constexpr int64_t Bf16GroupRows(int64_t rows) {
  return rows < kBf16GroupRows ? rows : kBf16GroupRows;
}
constexpr int64_t Bf16NumGroups(int64_t rows) { return DivideUp(rows, kBf16GroupRows); }
constexpr int64_t Bf16Steps(int64_t in) { return DivideUp(in, 32); }
constexpr int64_t Bf16PackedBytes(int64_t rows, int64_t in) {
  return Bf16NumGroups(rows) * Bf16Steps(in) * Bf16GroupRows(rows) * 64;
}

// Steps [step_begin, step_end) of x in one block of rows, for weights of `weight_dtype`: of 32 k
// for PackAmx, PackAmxBf16 and PackBf16, which split x into bf16 parts or round it, of kSimdBlockK
// for PackSimd, groups for the others.
struct PackTask {
  const float* x;
  int64_t x_stride;
  int64_t rows;
  int64_t in;
  DType weight_dtype;
  int64_t block;
  int64_t step_begin;
  int64_t step_end;
  std::byte* packed;
};
void PackSimd(const PackTask& task);
void PackAmx(const PackTask& task);
void MatmulTileAmx(const MatmulTile& tile);
void PackAmxBf16(const PackTask& task);
void MatmulTileAmxBf16(const MatmulTile& tile);
void PackAmxGroups(const PackTask& task);
void MatmulTileAmxGroups(const MatmulTile& tile);
void MatmulTileAmxNumbers(const MatmulTile& tile);  // x as PackAmx makes it
void PackAmxBytes(const PackTask& task);
void MatmulTileAmxBytes(const MatmulTile& tile);
void PackBf16(const PackTask& task);
void MatmulTileBf16(const MatmulTile& tile);
void PackVnni(const PackTask& task);
void MatmulTileVnni(const MatmulTile& tile);
void PackVnniBytes(const PackTask& task);
void MatmulTileVnniBytes(const MatmulTile& tile);

}  // namespace spillway::kernels
