// Matmul of quantised weights on the AMX tile unit, in the arithmetic of matmul_groups.h.
// The codes of a group are a line of the tile as they are: 64 weights of 4 bits take one shift and
// one mask, those of 8 bits nothing, and the unit multiplies 64 k of bytes in the time of 32 of
// bf16.
#include <immintrin.h>

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

// A panel is multiplied with all blocks of x by this many groups at a time: 8 KiB of codes.
constexpr int64_t kChunkGroups = 8;

// Scratch of a worker: codes of a chunk as bytes, heads, products of two groups, sums of up to 4
// blocks.
struct Scratch {
  std::byte codes[kChunkGroups][kTileBytes];  // [group][16 outs][64 k]
  uint32_t heads[kChunkGroups][kPanelOuts];   // as they are stored
  int32_t products[2][kPanelOuts * 32 + 16];  // [16 outs][bytes of x][columns], 16 to read
  float sums[4][kPanelOuts * 16];             // [16 outs][16 rows]
};
static_assert(sizeof(Scratch) <= kAmxScratchBytes);

// Chunk [begin, end) of the groups of a panel of outputs.
struct Chunk {
  int64_t begin;
  int64_t end;
};

// Rows of x in a block. kOne: the sums of 16 outputs are one register, 8 operations a group instead
// of 16 times 6. kFew, up to 8: one tile holds all their bytes. kBlock: 16 rows.
enum class Rows { kOne, kFew, kBlock };

template <DType kType, CodedX kX, Rows kRows>
struct PanelStream {
  static constexpr int64_t kBytes = GroupBytes(kType);
  static constexpr int64_t kXBytes = XBytes(kX);
  static constexpr int kSums = kRows == Rows::kOne ? 1 : 16;

  const MatmulTile& tile;
  const PanelRows<std::byte>& rows;
  const std::byte* next;  // 16 rows that this worker likely reads next
  int64_t columns;        // of a block of x
  Scratch& scratch;

  const std::byte* X(int64_t block, int64_t group) const {
    return tile.packed + (block * NumGroups(tile.in) + group) * AmxGroupXBytes(tile.total_rows, kX);
  }

  // Unpacks codes to bytes, in the order of LowBytes. Prefetches as many bytes of the panel that
  // comes next, in the order of memory.
  [[gnu::always_inline]] inline void Unpack(int64_t group) const {
    const int64_t slot = group % kChunkGroups;
    const std::byte* coming = next + group * kPanelOuts * kBytes;
    for (int64_t at = 0; at < kPanelOuts * kBytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(coming + at), _MM_HINT_T1);
    }
#pragma GCC unroll 16
    for (int line = 0; line < kPanelOuts; ++line) {
      const std::byte* from = rows.weight[line] + group * kBytes;
      __builtin_memcpy(&scratch.heads[slot][line], from, GroupHeadBytes(kType));
      const __m512i bytes = UnpackCodes<kType>(from + GroupHeadBytes(kType));
      _mm512_store_si512(scratch.codes[slot] + line * 64, bytes);
    }
  }

  // Sums of code * x over a group, to products: [16 outs][high bytes, low bytes][columns], or of
  // the only bytes.
  [[gnu::always_inline]] inline void Multiply(int64_t block, int64_t group) const {
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

template <DType kType, CodedX kX, Rows kRows>
void MulPanel(const MatmulTile& tile, int64_t out, Scratch& scratch) {
  using Stream = PanelStream<kType, kX, kRows>;
  const int64_t row_bytes = RowBytes(kType, tile.in);
  const PanelRows<std::byte> rows(tile, row_bytes, out);
  const bool last = out + kPanelOuts >= tile.out_begin + tile.num_outs;
  const std::byte* next = static_cast<const std::byte*>(tile.piece->weight) +
                          (last ? tile.next_out_begin : out + kPanelOuts) * row_bytes;
  const Stream stream = {tile, rows, next, AmxGroupColumns(tile.total_rows), scratch};
  const int64_t first_block = tile.row_begin / 16;
  const int64_t num_blocks = (tile.num_rows + 15) / 16;
  const int64_t num_groups = NumGroups(tile.in);
  for (int64_t begin = 0; begin < num_groups; begin += kChunkGroups) {
    const Chunk chunk = {begin, MinOf(num_groups, begin + kChunkGroups)};
    stream.template Run<Stream::Codes::kPacked>(first_block, chunk, scratch.sums[0]);
    for (int64_t block = 1; block < num_blocks; ++block) {
      stream.template Run<Stream::Codes::kUnpacked>(first_block + block, chunk,
                                                    scratch.sums[block]);
    }
  }
  if constexpr (kRows == Rows::kOne) {
    const int64_t num_outs = MinOf(kPanelOuts, tile.out_begin + tile.num_outs - out);
    return Finish(tile, 0, out, _mm512_load_ps(scratch.sums[0]), num_outs);
  }
  for (int64_t block = 0; block < num_blocks; ++block) {
    FinishTile(tile, out, tile.row_begin + block * 16, {scratch.sums[block], 16});
  }
}

template <DType kType, CodedX kX, Rows kRows>
void MulPanels(const MatmulTile& tile) {
  Scratch& scratch = *reinterpret_cast<Scratch*>(tile.scratch);
  for (int64_t out = tile.out_begin; out < tile.out_begin + tile.num_outs; out += kPanelOuts) {
    MulPanel<kType, kX, kRows>(tile, out, scratch);
  }
}

template <DType kType, CodedX kX>
void MulTile(const MatmulTile& tile) {
  const int64_t columns = AmxGroupColumns(tile.total_rows);
  ConfigureTiles(columns < 16 ? XBytes(kX) * columns : columns);
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
void MatmulTileAmxBytes(const MatmulTile& tile) { MulTileOf<CodedX::kOneByte>(tile); }

}  // namespace spillway::kernels
