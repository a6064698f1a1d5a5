// Matmul of quantised weights with one step for a group on the AMX tile unit: of integers in the
// arithmetic of matmul_groups.h, of numbers in that of matmul_amx.cc.
// The codes of a group are a line of the tile as they are: 64 weights of 4 bits take one shift and
// one mask, those of 8 bits nothing, and the unit multiplies 64 k of bytes in the time of 32 of
// bf16. Numbers (kFp8) are two lines of bf16, which they are exactly, without their scale; x is the
// sum of two bf16, and a group's fp32 sums are scaled as they are added, in rising order of groups.
#include <immintrin.h>

#include <array>
#include <bit>

#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul_amx_tile.h"
#include "kernels/matmul/matmul_groups.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// The bytes of a block of x, [16 words][columns], of a tile each or side by side.
template <CodedX kX>
void StoreBytes(__m512i (&high)[16], __m512i (&low)[16], int64_t columns, std::byte* to) {
  if constexpr (kX == CodedX::kOneByte) return StoreColumns(low, columns, to);
  if (columns == 16) {
    StoreColumns(high, columns, to);
    return StoreColumns(low, columns, to + kTileBytes);
  }
  for (int64_t column = 0; column < columns; ++column) high[columns + column] = low[column];
  StoreColumns(high, 2 * columns, to);
}

template <CodedX kX>
void PackGroup(const PackTask& task, int64_t group, std::byte* to) {
  const int64_t columns = AmxGroupColumns(task.rows);
  const int64_t n = MinOf(kGroupWeights, task.in - group * kGroupWeights);
  __m512i high[16] = {};
  __m512i low[16] = {};
  float* scales = reinterpret_cast<float*>(to + XBytes(kX) * columns * kGroupWeights);
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t row = task.block * columns + column;
    const bool there = row < task.rows;
    const float* from = task.x + row * task.x_stride + group * kGroupWeights;
    const GroupX x = RoundX<kX>(there ? from : task.x, there ? n : 0);
    low[column] = LowBytes(x.part, task.weight_dtype);
    if constexpr (kX == CodedX::kTwoBytes) {
      __m512i rest[4];
      HighBytes(x.part, rest);
      high[column] = LowBytes(rest, task.weight_dtype);
    }
    scales[column] = x.scale;
    scales[columns + column] = x.Total(0, 4);
  }
  StoreBytes<kX>(high, low, columns, to);
}

// Bytes of the bf16 of each number of kFp8 without its sign; of what is none those of a NaN.
struct NumberBytes {
  alignas(64) std::array<uint8_t, 128> low = {};
  alignas(64) std::array<uint8_t, 128> high = {};

  constexpr NumberBytes() {
    for (unsigned code = 0; code < 128; ++code) {
      const unsigned exponent = code >> 3;
      const float fraction = static_cast<float>(code % 8) * 0.125F + (exponent > 0 ? 1.0F : 0.0F);
      float number = fraction * 0x1p-6F;
      for (unsigned i = 1; i < exponent; ++i) number *= 2.0F;
      const uint32_t bits = code == kFp8NaN ? 0x7FC00000U : std::bit_cast<uint32_t>(number);
      low[code] = static_cast<uint8_t>(bits >> 16);
      high[code] = static_cast<uint8_t>(bits >> 24);
    }
  }
};
constexpr NumberBytes kNumberBytes;

// Both lines of 64 numbers, in their order.
inline void UnpackNumbers(const std::byte* codes, std::byte* first, std::byte* second) {
  // The halves of a lane are what the interleaving below takes to lane i of the one line and of the
  // other.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i all = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes));
  const auto look_up = [all](const std::array<uint8_t, 128>& table) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table.data()), all,
                                    _mm512_load_si512(table.data() + 64));
  };
  const __m512i low = look_up(kNumberBytes.low);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i high =
      _mm512_ternarylogic_epi32(look_up(kNumberBytes.high), all, sign, 0xF8);  // a | (b & c)
  _mm512_store_si512(first, _mm512_unpacklo_epi8(low, high));
  _mm512_store_si512(second, _mm512_unpackhi_epi8(low, high));
}

// A panel is multiplied with all blocks of x by this many groups at a time: 8 KiB of codes, 16 of
// numbers.
constexpr int64_t kChunkGroups = 8;

// Scratch of a worker: codes of a chunk as bytes, or numbers as bf16, heads, products of two
// groups, sums of up to 4 blocks for one panel, or all of a tile whose k is cut.
struct Scratch {
  std::byte codes[kChunkGroups][2 * kTileBytes];  // [group][16 outs][64 k], [2][16 outs][32 k]
  uint32_t heads[kChunkGroups][kPanelOuts];       // as they are stored
  int32_t products[2][kPanelOuts * 32 + 16];      // [16 outs][bytes of x][columns], 16 to read
  float sums[kAmxTileOuts / kPanelOuts][4][kPanelOuts * 16];  // [16 outs][16 rows]
};
static_assert(sizeof(Scratch) <= kAmxScratchBytes);

// Groups [begin, end) of a panel of outputs.
struct Chunk {
  int64_t begin;
  int64_t end;
};

// Groups of k at a time: of numbers, whose x has twice the bytes of that beside codes, as many as
// keep it in the second-level cache for all panels of a tile.
template <DType kType>
int64_t GroupsAtATime(const MatmulTile& tile) {
  const int64_t num_groups = NumGroups(tile.in);
  if (kType != DType::kFp8) return num_groups;
  const int64_t x_bytes = DivideUp(tile.num_rows, 16) * AmxStepsK(tile.in) *
                          AmxStepBytes(tile.total_rows, AmxX::kSplit);
  return RoundUp(DivideUp(num_groups, DivideUp(x_bytes, kAmxBlockBytes)), kChunkGroups);
}

// Rows of x in a block. kOne: the sums of 16 outputs are one register, 8 operations a group instead
// of 16 times 6. kFew, up to 8, of numbers 15: one tile holds all their bytes. kBlock: 16 rows.
enum class Rows { kOne, kFew, kBlock };

template <DType kType, CodedX kX, Rows kRows>
struct PanelStream {
  static constexpr int64_t kBytes = GroupBytes(kType);
  static constexpr int64_t kXBytes = XBytes(kX);
  static constexpr int kSums = kRows == Rows::kOne ? 1 : 16;
  static constexpr bool kIsNumber = kType == DType::kFp8;

  const MatmulTile& tile;
  const PanelRows<std::byte>& rows;
  int64_t ahead;    // bytes from a group of this panel to one that this worker likely reads next
  int64_t columns;  // of a block of x
  Scratch& scratch;

  const std::byte* X(int64_t block, int64_t group) const {
    return tile.packed + (block * NumGroups(tile.in) + group) * AmxGroupXBytes(tile.total_rows, kX);
  }

  // Of numbers: both parts of x for 32 k.
  const std::byte* XOfStep(int64_t block, int64_t step) const {
    return tile.packed +
           (block * AmxStepsK(tile.in) + step) * AmxStepBytes(tile.total_rows, AmxX::kSplit);
  }

  // Prefetches as many bytes of the panel that comes next as a group takes, in the order of memory.
  [[gnu::always_inline]] inline void Prefetch(int64_t group) const {
    const std::byte* coming = rows.weight[0] + ahead + group * kPanelOuts * kBytes;
    for (int64_t at = 0; at < kPanelOuts * kBytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(coming + at), _MM_HINT_T1);
  }

  // Unpacks codes to bytes, in the order of LowBytes.
  [[gnu::always_inline]] inline void Unpack(int64_t group) const {
    const int64_t slot = group % kChunkGroups;
    if constexpr (!kIsNumber) Prefetch(group);
#pragma GCC unroll 16
    for (int line = 0; line < kPanelOuts; ++line) {
      const std::byte* from = rows.weight[line] + group * kBytes;
      __builtin_memcpy(&scratch.heads[slot][line], from, GroupHeadBytes(kType));
      if constexpr (kIsNumber) {
        _mm_prefetch(reinterpret_cast<const char*>(from + ahead), _MM_HINT_T1);
        std::byte* to = scratch.codes[slot] + line * 64;
        UnpackNumbers(from + GroupHeadBytes(kType), to, to + kTileBytes);
        continue;
      }
      const __m512i bytes = UnpackCodes<kType>(from + GroupHeadBytes(kType));
      _mm512_store_si512(scratch.codes[slot] + line * 64, bytes);
    }
  }

  // Sums of number * x over a group to products, [16 outs][columns]: the lesser parts of x first.
  [[gnu::always_inline]] inline void MultiplyNumbers(int64_t block, int64_t group) const {
    const std::byte* numbers = scratch.codes[group % kChunkGroups];
    const int64_t stride = columns * 4;
    const std::byte* x = XOfStep(block, 2 * group);
    ZeroTile<0>();
    LoadTile<4>(numbers, 64);
    LoadTile<6>(x + 16 * stride, stride);
    MulBf16Tiles<0, 4, 6>();
    LoadTile<7>(x, stride);
    MulBf16Tiles<0, 4, 7>();
    if (2 * group + 1 < AmxStepsK(tile.in)) {
      x += 2 * 16 * stride;
      LoadTile<5>(numbers + kTileBytes, 64);
      LoadTile<6>(x + 16 * stride, stride);
      MulBf16Tiles<0, 5, 6>();
      LoadTile<7>(x, stride);
      MulBf16Tiles<0, 5, 7>();
    }
    StoreTile<0>(scratch.products[group & 1], stride);
  }

  // Adds a group's products, scaled, to `sums`.
  [[gnu::always_inline]] inline void AddNumbers(int64_t group, __m512 (&sums)[kSums]) const {
    const float* products = reinterpret_cast<const float*>(scratch.products[group & 1]);
    const uint32_t* heads = scratch.heads[group % kChunkGroups];
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      const __m512 scale = _mm512_castsi512_ps(
          kRows == Rows::kOne ? _mm512_loadu_si512(heads)
                              : _mm512_set1_epi32(static_cast<int32_t>(heads[i])));
      sums[i] = _mm512_fmadd_ps(_mm512_loadu_ps(products + i * columns), scale, sums[i]);
    }
  }

  // Sums of code * x over a group, to products: [16 outs][high bytes, low bytes][columns], or of
  // the only bytes.
  [[gnu::always_inline]] inline void Multiply(int64_t block, int64_t group) const {
    if constexpr (kIsNumber) return MultiplyNumbers(block, group);
    const std::byte* x = X(block, group);
    int32_t* products = scratch.products[group & 1];
    LoadTile<4>(scratch.codes[group % kChunkGroups], 64);
    ZeroTile<0>();
    if constexpr (kRows != Rows::kBlock || kXBytes == 1) {
      const int64_t stride = kXBytes * columns * 4;
      LoadTile<6>(x, stride);
      MulByteTiles<0, 4, 6>();
      StoreTile<0>(products, stride);
    } else {
      ZeroTile<1>();
      LoadTile<6>(x, 64);
      MulByteTiles<0, 4, 6>();
      LoadTile<7>(x + kTileBytes, 64);
      MulByteTiles<1, 4, 7>();
      StoreTile<0>(products, 128);
      StoreTile<1>(products + 16, 128);
    }
  }

  // Products of 16 outputs for the only row of x.
  static __m512 SumsOfOne(const int32_t* products) {
    const __m512i first = _mm512_loadu_si512(products);
    if constexpr (kXBytes == 1) return _mm512_cvtepi32_ps(first);
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512i second = _mm512_loadu_si512(products + 16);
    return SumOf<kX>(_mm512_permutex2var_epi32(first, even, second),
                     _mm512_permutex2var_epi32(first, odd, second));
  }

  // Products of one output for the rows of x.
  static __m512 SumsOf(const int32_t* products, int out, int64_t stride) {
    const __m512i first = _mm512_loadu_si512(products + out * kXBytes * stride);
    if constexpr (kXBytes == 1) return _mm512_cvtepi32_ps(first);
    return SumOf<kX>(first, _mm512_loadu_si512(products + (out * kXBytes + 1) * stride));
  }

  // Adds a group's products, as fp32 and scaled, to `sums`. Lanes are outputs for one row of x,
  // rows of x for more.
  [[gnu::always_inline]] inline void Add(int64_t block, int64_t group,
                                         __m512 (&sums)[kSums]) const {
    if constexpr (kIsNumber) return AddNumbers(group, sums);
    const int32_t* products = scratch.products[group & 1];
    const float* scales =
        reinterpret_cast<const float*>(X(block, group) + kXBytes * columns * kGroupWeights);
    const Heads heads = LoadHeads<kType>(scratch.heads[group % kChunkGroups]);
    if constexpr (kRows == Rows::kOne) {
      const __m512 stepped = _mm512_mul_ps(SumsOfOne(products), heads.step);
      sums[0] = _mm512_fmadd_ps(stepped, Simd::Set(scales[0]), sums[0]);
      sums[0] = _mm512_fmadd_ps(heads.minimum, Simd::Set(scales[1]), sums[0]);
    } else {
      alignas(64) float minimum[16];
      alignas(64) float step[16];
      _mm512_store_ps(minimum, heads.minimum);
      _mm512_store_ps(step, heads.step);
      const __m512 scale = Simd::LoadPart(scales, columns);
      const __m512 total = Simd::LoadPart(scales + columns, columns);
      const int64_t stride = kRows == Rows::kFew ? columns : 16;
#pragma GCC unroll 16
      for (int out = 0; out < kPanelOuts; ++out) {
        const __m512 stepped =
            _mm512_mul_ps(SumsOf(products, out, stride), _mm512_set1_ps(step[out]));
        sums[out] = _mm512_fmadd_ps(stepped, scale, sums[out]);
        sums[out] = _mm512_fmadd_ps(_mm512_set1_ps(minimum[out]), total, sums[out]);
      }
    }
  }

  // Pipelined: while the unit multiplies a group, the next one is unpacked and the one before is
  // added, so that nothing is read right after it was stored. Codes are unpacked for the first
  // block of x only.
  enum class Codes { kPacked, kUnpacked };
  template <Codes kCodes>
  void Run(int64_t block, Chunk chunk, float* memory) const {
    __m512 sums[kSums];
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) {
      sums[i] = chunk.begin == 0 ? _mm512_setzero_ps() : _mm512_load_ps(memory + i * 16);
    }
    if constexpr (kCodes == Codes::kPacked) Unpack(chunk.begin);
    for (int64_t group = chunk.begin; group < chunk.end; ++group) {
      if (kCodes == Codes::kPacked && group + 1 < chunk.end) Unpack(group + 1);
      Multiply(block, group);
      if (group > chunk.begin) Add(block, group - 1, sums);
    }
    Add(block, chunk.end - 1, sums);
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) _mm512_store_ps(memory + i * 16, sums[i]);
  }
};

// Rows of x in a block.
template <DType kType>
int64_t Columns(int64_t rows) {
  return kType == DType::kFp8 ? AmxBlockRows(rows) : AmxGroupColumns(rows);
}

// Bytes from a group of the panel at `out` to what is read after the panel's `groups`: the next
// panel, the first with the next groups, or the next tile.
template <DType kType>
int64_t BytesAhead(const MatmulTile& tile, int64_t out, Chunk groups) {
  const int64_t row_bytes = RowBytes(kType, tile.in);
  if (out + kPanelOuts < tile.out_begin + tile.num_outs) return kPanelOuts * row_bytes;
  const bool ends = groups.end == NumGroups(tile.in);
  const int64_t num_rows = (ends ? tile.next_out_begin : tile.out_begin) - out;
  return num_rows * row_bytes + ((ends ? 0 : groups.end) - groups.begin) * GroupBytes(kType);
}

// Adds `groups` of the panel at `out` to its sums, of each block.
template <DType kType, CodedX kX, Rows kRows>
void MulPanel(const MatmulTile& tile, int64_t out, Chunk groups, Scratch& scratch,
              float (*sums)[kPanelOuts * 16]) {
  using Stream = PanelStream<kType, kX, kRows>;
  const PanelRows<std::byte> rows(tile, RowBytes(kType, tile.in), out);
  const Stream stream = {tile, rows, BytesAhead<kType>(tile, out, groups),
                         Columns<kType>(tile.total_rows), scratch};
  const int64_t first_block = tile.row_begin / 16;
  const int64_t num_blocks = (tile.num_rows + 15) / 16;
  for (int64_t begin = groups.begin; begin < groups.end; begin += kChunkGroups) {
    const Chunk chunk = {begin, MinOf(groups.end, begin + kChunkGroups)};
    stream.template Run<Stream::Codes::kPacked>(first_block, chunk, sums[0]);
    for (int64_t block = 1; block < num_blocks; ++block)
      stream.template Run<Stream::Codes::kUnpacked>(first_block + block, chunk, sums[block]);
  }
}

template <Rows kRows>
void FinishPanel(const MatmulTile& tile, int64_t out, const float (*sums)[kPanelOuts * 16]) {
  if constexpr (kRows == Rows::kOne) {
    const int64_t num_outs = MinOf(kPanelOuts, tile.out_begin + tile.num_outs - out);
    return Finish(tile, 0, out, _mm512_load_ps(sums[0]), num_outs);
  }
  for (int64_t block = 0; block < (tile.num_rows + 15) / 16; ++block)
    FinishTile(tile, out, tile.row_begin + block * 16, {sums[block], 16});
}

template <DType kType, CodedX kX, Rows kRows>
void MulPanels(const MatmulTile& tile) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(tile.scratch);
  const int64_t num_groups = NumGroups(tile.in);
  const int64_t at_a_time = GroupsAtATime<kType>(tile);
  for (int64_t begin = 0; begin < num_groups; begin += at_a_time) {
    const Chunk groups = {begin, MinOf(num_groups, begin + at_a_time)};
    for (int64_t panel = 0; panel * kPanelOuts < tile.num_outs; ++panel) {
      const int64_t out = tile.out_begin + panel * kPanelOuts;
      auto* sums = scratch.sums[at_a_time < num_groups ? panel : 0];
      MulPanel<kType, kX, kRows>(tile, out, groups, scratch, sums);
      if (groups.end == num_groups) FinishPanel<kRows>(tile, out, sums);
    }
  }
}

template <DType kType, CodedX kX>
void MulTile(const MatmulTile& tile) {
  const int64_t columns = Columns<kType>(tile.total_rows);
  const bool side_by_side = columns < 16 && kType != DType::kFp8;
  ConfigureTiles(side_by_side ? XBytes(kX) * columns : columns);
  if (columns == 1) return MulPanels<kType, kX, Rows::kOne>(tile);
  columns < 16 ? MulPanels<kType, kX, Rows::kFew>(tile) : MulPanels<kType, kX, Rows::kBlock>(tile);
}

template <CodedX kX>
void MulTileOf(const MatmulTile& tile) {
  WithCodes(tile.piece->weight_dtype, [&]<DType kType>() { MulTile<kType, kX>(tile); });
  ReleaseTiles();
}

template <CodedX kX>
void Pack(const PackTask& task) {
  const int64_t bytes = AmxGroupXBytes(task.rows, kX);
  std::byte* to = task.packed + task.block * NumGroups(task.in) * bytes;
  for (int64_t group = task.step_begin; group < task.step_end; ++group)
    PackGroup<kX>(task, group, to + group * bytes);
}

}  // namespace

void PackAmxGroups(const PackTask& task) { Pack<CodedX::kTwoBytes>(task); }
void PackAmxBytes(const PackTask& task) { Pack<CodedX::kOneByte>(task); }
void MatmulTileAmxGroups(const MatmulTile& tile) { MulTileOf<CodedX::kTwoBytes>(tile); }
void MatmulTileAmxNumbers(const MatmulTile& tile) {
  MulTile<DType::kFp8, CodedX::kTwoBytes>(tile);
  ReleaseTiles();
}
void MatmulTileAmxBytes(const MatmulTile& tile) { MulTileOf<CodedX::kOneByte>(tile); }

}  // namespace spillway::kernels
