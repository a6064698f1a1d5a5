// Matmul on the AMX tile unit: bf16 products, fp32 sums.
// An fp16 weight is hi + lo exactly (8 + 3 bits of bf16), x is x1 + x2 to 17 bits (8 + 8, each
// rounded). Per step of 32 k an element takes lo*x1, hi*x1, hi*x2 in this order into one fp32
// accumulator; bf16 weights take w*x1, w*x2. What is dropped (lo*x2 and the rest of x) is below
// 2^-16 of a product and random in sign: 3e-6 of the products' root-mean-square, measured, where
// bf16 or TF32 units lose 1000 or 100 times as much. Sums of 512 k are added in order. This fixes
// every bit, whatever the number of rows. The unit flushes denormals: parts of x under 2^-126 count
// as zero. Rounded (kAmxBf16), x and fp16 weights are one bf16 each, to the nearest even: one
// product, which loses up to 2^-8 of either. Quantised weights whose groups have several steps
// become floats and then hi + lo as fp16 ones do, to 16 bits where they have more; those of kMxfp4
// are one bf16 exactly. The weights are the A tile (16 outputs x 32 k, as they lie in memory) and x
// the B tile (pairs of k x rows), so that no weight is transposed. x is split once per call
// (PackAmx), weights as they are read.
#include <immintrin.h>

#include "kernels/matmul/matmul_amx_split.h"
#include "kernels/matmul/matmul_amx_tile.h"
#include "kernels/matmul/matmul_isa.h"
#include "kernels/simd/simd.h"

namespace spillway::kernels {
namespace {

// Weights are split as they stream by, while the unit works on earlier steps: a panel of 16
// outputs against 1, 2 or 4 blocks of 16 rows. Sixteen rows of weights are as many streams as the
// processor's own prefetcher follows; 64 at a time read memory a tenth slower. More rows split the
// same weights again, which costs less than writing and reading a split panel, and k is cut into
// blocks whose x stays in L2 for all outputs of a tile.

// Tiles are emptied into fp32 sums after this many steps (512 k), counted from 0. The unit rounds
// after every pair of k, so one long sum in a tile errs twice as much as the plainest FMA loop;
// short ones err less than it.
constexpr int64_t kSumSteps = 16;

// Weights are prefetched in groups of consecutive lines of one row, this many groups ahead of the
// split: line by line, 16 rows apart in memory, every request would open another DRAM page.
constexpr int64_t kGroupLines = 4;
constexpr int64_t kGroupsAhead = 2;

// Weights are split this many steps before they are multiplied: a tile cannot be loaded from stores
// that have not reached the cache. A group of quantised weights is two steps of k: during the first
// eight of the panel's 16 lines are split, during the second the others.
template <DType kType>
constexpr int64_t kStepsAhead = IsQuantised(kType) ? 4 : 3;
template <DType kType>
constexpr int64_t kRingSteps = IsQuantised(kType) ? 2 * kAmxRingSteps : kAmxRingSteps;
static_assert(kAmxRingBytes == kRingSteps<DType::kGgufQ8> * 2 * kTileBytes);

// Kind of the later step whose weights are split during this one: none, a full step of 32 k, or the
// shorter last one of a row.
enum class Split { kNone, kFull, kTail };

inline void ZeroSums() {
  ZeroTile<0>();
  ZeroTile<1>();
  ZeroTile<2>();
  ZeroTile<3>();
}

// sums += part. Requires: count is a multiple of 16.
inline void AddPart(const float* part, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; i += 16) {
    _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(part + i)));
  }
}

// Addresses of the blocks of 16 rows of x. Past the last block it is repeated, and its results are
// dropped.
template <AmxX kX, int kRowBlocks>
struct BlocksOfX {
  const std::byte* block[kRowBlocks];

  BlocksOfX(const MatmulTile& tile, int64_t first) {
    const int64_t last = AmxNumBlocks(tile.total_rows) - 1;
    const int64_t block_bytes = AmxStepsK(tile.in) * AmxStepBytes(tile.total_rows, kX);
    for (int64_t i = 0; i < kRowBlocks; ++i) {
      block[i] = tile.packed + MinOf(first + i, last) * block_bytes;
    }
  }
};

template <DType kType, AmxX kX, int kRowBlocks>
struct Stream {
  static constexpr int kLines = IsQuantised(kType) ? kPanelOuts / 2 : kPanelOuts;  // of a step
  static constexpr int64_t kXParts = AmxXParts(kX);
  static constexpr int kPhases = kX == AmxX::kRounded ? 1 : Parts(kType, kX) == 2 ? 3 : 2;
  static constexpr int64_t kRingBytes = Parts(kType, kX) * kTileBytes;

  const PanelRows<std::byte>& rows;
  const BlocksOfX<kX, kRowBlocks>& x;
  int64_t in;
  int64_t columns;
  int64_t step_begin;
  int64_t step_end;
  int64_t jump;     // bytes from (this panel, step_end) to where this worker likely reads next
  std::byte* ring;  // kRingSteps x [part][16 outs][64 B]
  float* part;      // the sums of one run of kSumSteps

  // The parts that a phase multiplies: lo*x1, hi*x1, hi*x2.
  static constexpr int WeightPart(int phase) { return kPhases == 3 && phase == 0 ? 1 : 0; }
  static constexpr int XPart(int phase) { return phase > 0 && phase == kPhases - 1 ? 1 : 0; }
  // Tile register of a part of x. A single part alternates between two registers, so that a block
  // need not wait for the product of the one before.
  static constexpr int XTile(int block, int phase) {
    return kPhases == 1 ? 6 + block % 2 : 6 + XPart(phase);
  }

  std::byte* Ring(int64_t step) const { return ring + step % kRingSteps<kType> * kRingBytes; }

  template <int kTile>
  void LoadWeights(int64_t step, int weight_part) const {
    LoadTile<kTile>(Ring(step) + weight_part * kTileBytes, 64);
  }
  template <int kTile>
  void LoadX(int64_t step, int block, int x_part) const {
    LoadTile<kTile>(x.block[block] + (step * kXParts + x_part) * columns * 64, columns * 4);
  }

  // Lines [kBegin, kEnd) of those that are split with `step`.
  template <Split kSplit, int kBegin, int kEnd>
  inline __attribute__((always_inline)) void SplitLines(int64_t step, int64_t ahead) const {
    if constexpr (kSplit == Split::kNone) {
      return;
    } else if constexpr (IsQuantised(kType)) {
      SplitGroups<kBegin, kEnd>(step, ahead);
    } else {
      std::byte* to = Ring(step);
#pragma GCC unroll 8
      for (int line = kBegin; line < kEnd; ++line) {
        const std::byte* coming =
            rows.weight[line / kGroupLines * kGroupLines + step % kGroupLines];
        _mm_prefetch(reinterpret_cast<const char*>(coming) + ahead + line % kGroupLines * 64,
                     _MM_HINT_T0);
        const std::byte* from = rows.weight[line] + BytesBefore<kType>(step);
        SplitLine<kType, kX, kSplit == Split::kTail>(from, in - step * kStepK, to + line * 64);
      }
    }
  }

  // As many of the group that `step` is half of. Codes past the end of a row meet an x of zero.
  template <int kBegin, int kEnd>
  inline __attribute__((always_inline)) void SplitGroups(int64_t step, int64_t ahead) const {
    const int64_t half = step % 2;
    std::byte* to = Ring(step - half);
#pragma GCC unroll 2
    for (int i = kBegin; i < kEnd; ++i) {
      const int64_t line = half * kLines + i;
      const std::byte* group = rows.weight[line] + BytesBefore<kType>(step - half);
      _mm_prefetch(reinterpret_cast<const char*>(group) + ahead, _MM_HINT_T1);
      SplitGroup<kType>(group, to + line * 64, to + kRingBytes + line * 64);
    }
  }

  // Bytes from the start of a row to the group of lines prefetched while `step` is split, in the
  // same row or behind the jump; of quantised weights from what is split to its like behind it.
  int64_t Ahead(int64_t step) const {
    if constexpr (IsQuantised(kType))
      return jump + BytesBefore<kType>(step_end) - BytesBefore<kType>(step_begin);
    const int64_t coming = (step / kGroupLines + kGroupsAhead) * kGroupLines;
    return coming * 64 + (coming < step_end ? 0 : jump);
  }

  // One product of a block of rows, with the loads it is the first to need, and its share of the
  // split. Tiles 4 and 5 hold weights, 6 and 7 x.
  template <Split kSplit, int kBlock, int kPhase>
  inline __attribute__((always_inline)) void Product(int64_t step, int64_t ahead) const {
    constexpr int kWeight = WeightPart(kPhase);
    constexpr int kXTile = XTile(kBlock, kPhase);
    constexpr bool kNewWeight = kPhase == 0 || kWeight != WeightPart(kPhase - 1);
    constexpr bool kNewX = kPhase == 0 || XPart(kPhase) != XPart(kPhase - 1);
    if constexpr (kNewWeight && kBlock == 0) LoadWeights<4 + kWeight>(step, kWeight);
    if constexpr (kNewX) LoadX<kXTile>(step, kBlock, XPart(kPhase));
    MulBf16Tiles<kBlock, 4 + kWeight, kXTile>();
    constexpr int kProduct = kBlock * kPhases + kPhase;
    constexpr int kProducts = kRowBlocks * kPhases;
    SplitLines<kSplit, kProduct * kLines / kProducts, (kProduct + 1) * kLines / kProducts>(
        step + kStepsAhead<kType>, ahead);
  }

  template <Split kSplit, int kProduct = 0>
  inline __attribute__((always_inline)) void Step(int64_t step, int64_t ahead) const {
    Product<kSplit, kProduct / kPhases, kProduct % kPhases>(step, ahead);
    if constexpr (kProduct + 1 < kRowBlocks * kPhases) Step<kSplit, kProduct + 1>(step, ahead);
  }

  // sums += the tiles, or = for the first.
  void AddTiles(float* sums, bool first) const {
    float* to = first ? sums : part;
    const int64_t tile_floats = kPanelOuts * columns;
    StoreTile<0>(to, columns * 4);
    if constexpr (kRowBlocks > 1) StoreTile<1>(to + tile_floats, columns * 4);
    if constexpr (kRowBlocks > 2) {
      StoreTile<2>(to + 2 * tile_floats, columns * 4);
      StoreTile<3>(to + 3 * tile_floats, columns * 4);
    }
    if (!first) AddPart(part, kRowBlocks * tile_floats, sums);
  }

  void Run(float* sums) const {
    const bool tail = !IsQuantised(kType) && in < step_end * kStepK;
    const int64_t split_end = IsQuantised(kType) ? RoundUp(step_end, 2) : step_end;
    const int64_t full_end = tail ? step_end - 1 : split_end;
    const int64_t ready = MinOf(split_end, step_begin + kStepsAhead<kType>);
    for (int64_t step = step_begin; step < ready; ++step) {
      if (step < full_end) {
        SplitLines<Split::kFull, 0, kLines>(step, Ahead(step));
      } else {
        SplitLines<Split::kTail, 0, kLines>(step, Ahead(step));
      }
    }
    for (int64_t begin = step_begin; begin < step_end; begin += kSumSteps) {
      const int64_t end = MinOf(step_end, begin + kSumSteps);
      ZeroSums();
      for (int64_t step = begin; step < end; ++step) {
        const int64_t split = step + kStepsAhead<kType>;
        if (split < full_end) {
          Step<Split::kFull>(step, Ahead(split));
        } else if (split < split_end) {
          Step<Split::kTail>(step, Ahead(split));
        } else {
          Step<Split::kNone>(step, 0);
        }
      }
      AddTiles(sums, begin == 0);
    }
  }
};

// Sums of a panel -> y, dropping what lies past the tile.
template <int kRowBlocks>
void FinishSums(const MatmulTile& tile, int64_t out, int64_t row, const float* sums) {
  const int64_t columns = AmxBlockRows(tile.total_rows);
  for (int64_t i = 0; i < kRowBlocks && row + i * 16 < tile.row_begin + tile.num_rows; ++i) {
    FinishTile(tile, out, row + i * 16, {sums + i * kPanelOuts * columns, columns});
  }
}

// Steps of a block of k.
struct StepRange {
  int64_t begin;
  int64_t end;
};

// Bytes from (`out`, steps.end) to what the worker reads after this panel: the next panel of the
// block, the first of the next block, or the next tile.
template <DType kType>
inline int64_t JumpAfterPanel(const MatmulTile& tile, int64_t out, StepRange steps) {
  const int64_t row_bytes = RowBytes(kType, tile.in);
  if (out + kPanelOuts < tile.out_begin + tile.num_outs) {
    return kPanelOuts * row_bytes - BytesBefore<kType>(steps.end) + BytesBefore<kType>(steps.begin);
  }
  if (steps.end < AmxStepsK(tile.in)) return (tile.out_begin - out) * row_bytes;
  return (tile.next_out_begin - out) * row_bytes - BytesBefore<kType>(steps.end);
}

template <DType kType, AmxX kX, int kRowBlocks>
void StreamBlock(const MatmulTile& tile, StepRange steps) {
  constexpr int64_t kRows = kRowBlocks * 16;
  std::byte* ring = tile.scratch;
  float* part = reinterpret_cast<float*>(tile.scratch + kAmxRingBytes);
  float* sums = part + 4 * 256;
  const int64_t columns = AmxBlockRows(tile.total_rows);
  const int64_t row_end = tile.row_begin + tile.num_rows;
  for (int64_t out = tile.out_begin; out < tile.out_begin + tile.num_outs; out += kPanelOuts) {
    const PanelRows<std::byte> rows(tile, RowBytes(kType, tile.in), out);
    for (int64_t row = tile.row_begin; row < row_end; row += kRows) {
      const int64_t jump = row + kRows < row_end
                               ? BytesBefore<kType>(steps.begin) - BytesBefore<kType>(steps.end)
                               : JumpAfterPanel<kType>(tile, out, steps);
      const BlocksOfX<kX, kRowBlocks> x(tile, row / 16);
      Stream<kType, kX, kRowBlocks>{rows,      x,    tile.in, columns, steps.begin,
                                    steps.end, jump, ring,    part}
          .Run(sums);
      if (steps.end == AmxStepsK(tile.in)) FinishSums<kRowBlocks>(tile, out, row, sums);
      sums += kRows * kPanelOuts;
    }
  }
}

template <DType kType, AmxX kX, int kRowBlocks>
void StreamTile(const MatmulTile& tile) {
  // Equal blocks whose x is at most kAmxBlockBytes.
  const int64_t num_steps = AmxStepsK(tile.in);
  const int64_t x_bytes = (tile.num_rows + 15) / 16 * num_steps * AmxStepBytes(tile.total_rows, kX);
  const int64_t num_blocks = (x_bytes + kAmxBlockBytes - 1) / kAmxBlockBytes;
  const int64_t block_steps =
      ((num_steps + num_blocks - 1) / num_blocks + kSumSteps - 1) / kSumSteps * kSumSteps;
  for (int64_t step = 0; step < num_steps; step += block_steps) {
    StreamBlock<kType, kX, kRowBlocks>(tile, {step, MinOf(num_steps, step + block_steps)});
  }
}

// A panel's weights serve so many products, with many rows and x rounded, that they are copied once
// and kept close: two panels, one run of kSumSteps of k (32 KiB), against all rows of the tile, two
// blocks of them at a time. A product of tiles then needs one load, where Stream has five for four
// products, and reads half as many bytes of x from the second-level cache. The sums have the bits
// of Stream's.
constexpr int64_t kPairOuts = 2 * kPanelOuts;
constexpr int64_t kPairStepBytes = 2 * kTileBytes;
static_assert(kAmxPairBytes == kSumSteps * kPairStepBytes);

// Prefetches the weights that are copied next into the second-level cache: row by row, some lines
// at a time. Prefetching past the last row does no harm.
struct ComingLines {
  const std::byte* row;
  int64_t row_bytes;
  int64_t row_lines;
  int64_t lines_at_a_time;
  int64_t rows_left = kPairOuts;
  int64_t line = 0;

  void Fetch() {
    for (int64_t left = lines_at_a_time; left > 0 && rows_left > 0; --left) {
      _mm_prefetch(reinterpret_cast<const char*>(row + line * 64), _MM_HINT_T1);
      if (++line < row_lines) continue;
      line = 0;
      row += row_bytes;
      --rows_left;
    }
  }
};

// Weights that a worker reads after two panels, at `out`, and the run at `step`: the next panels,
// the next run or its next tile.
ComingLines ComingAfter(const MatmulTile& tile, int64_t out, int64_t step, int64_t num_multiplies) {
  const int64_t run_k = kSumSteps * kStepK;
  const bool same_run = out + kPairOuts < tile.out_begin + tile.num_outs;
  const bool same_tile = same_run || step * kStepK + run_k < tile.in;
  const int64_t row = same_run ? out + kPairOuts : same_tile ? tile.out_begin : tile.next_out_begin;
  const int64_t k = same_run ? step * kStepK : same_tile ? step * kStepK + run_k : 0;
  const auto* weights = static_cast<const std::byte*>(tile.piece->weight);
  const int64_t row_lines = DivideUp(MinOf(run_k, tile.in - k), kStepK);
  const int64_t num_fetches = num_multiplies * MinOf(kSumSteps, AmxStepsK(tile.in) - step);
  return {weights + (row * tile.in + k) * 2, tile.in * 2, row_lines,
          DivideUp(kPairOuts * row_lines, num_fetches)};
}

using PairX = BlocksOfX<AmxX::kRounded, 2>;

template <DType kType>
struct PanelPair {
  static constexpr int64_t kLineBytes = BytesBefore<kType>(1);

  const MatmulTile& tile;
  StepRange steps;     // at most kSumSteps
  std::byte* weights;  // [step][panel][16 outs][64 B]

  void CopyPanel(int64_t out, int64_t panel) const {
    const PanelRows<std::byte> rows(tile, RowBytes(kType, tile.in), out);
    const int64_t full_end = MinOf(steps.end, tile.in / kStepK);
    for (int64_t line = 0; line < kPanelOuts; ++line) {
      const std::byte* row = rows.weight[line];
      std::byte* to = weights + panel * kTileBytes + line * 64;
      int64_t step = steps.begin;
      for (; step < full_end; ++step, to += kPairStepBytes)
        SplitLine<kType, AmxX::kRounded, false>(row + step * kLineBytes, kStepK, to);
      if (step == steps.end) continue;
      SplitLine<kType, AmxX::kRounded, true>(row + step * kLineBytes, tile.in - step * kStepK, to);
    }
  }

  // Each of `sums`, two tiles of sums, = a panel x two blocks of rows.
  void Multiply(const PairX& x, float* const (&sums)[2], ComingLines& coming) const {
    ZeroSums();
    const std::byte* panels = weights;
    for (int64_t step = steps.begin; step < steps.end; ++step, panels += kPairStepBytes) {
      coming.Fetch();
      LoadTile<4>(panels, 64);
      LoadTile<5>(panels + kTileBytes, 64);
      LoadTile<6>(x.block[0] + step * kTileBytes, 64);
      LoadTile<7>(x.block[1] + step * kTileBytes, 64);
      MulBf16Tiles<0, 4, 6>();
      MulBf16Tiles<1, 4, 7>();
      MulBf16Tiles<2, 5, 6>();
      MulBf16Tiles<3, 5, 7>();
    }
    StoreTile<0>(sums[0], 64);
    StoreTile<1>(sums[0] + 256, 64);
    StoreTile<2>(sums[1], 64);
    StoreTile<3>(sums[1] + 256, 64);
  }
};

// The sums of a tile of many rows: [panel][block of rows][16 outs][16 rows], blocks in pairs.
struct ManySums {
  float* begin;
  int64_t num_blocks;

  float* At(int64_t panel, int64_t block) const {
    return begin + (panel * RoundUp(num_blocks, 2) + block) * 256;
  }
};

template <DType kType>
void PairTile(const MatmulTile& tile) {
  float* part = reinterpret_cast<float*>(tile.scratch + kAmxPairBytes);
  const ManySums sums = {part + 4 * 256, DivideUp(tile.num_rows, 16)};
  const int64_t num_steps = AmxStepsK(tile.in);
  for (int64_t begin = 0; begin < num_steps; begin += kSumSteps) {
    const StepRange steps = {begin, MinOf(num_steps, begin + kSumSteps)};
    const PanelPair<kType> pair{tile, steps, tile.scratch};
    for (int64_t panel = 0; panel * kPanelOuts < tile.num_outs; panel += 2) {
      const int64_t out = tile.out_begin + panel * kPanelOuts;
      pair.CopyPanel(out, 0);
      pair.CopyPanel(out + kPanelOuts, 1);
      ComingLines coming = ComingAfter(tile, out, begin, DivideUp(sums.num_blocks, 2));
      for (int64_t block = 0; block < sums.num_blocks; block += 2) {
        const PairX x(tile, tile.row_begin / 16 + block);
        float* const to[2] = {sums.At(panel, block), sums.At(panel + 1, block)};
        if (begin == 0) {
          pair.Multiply(x, to, coming);
          continue;
        }
        pair.Multiply(x, {part, part + 2 * 256}, coming);
        AddPart(part, 2 * 256, to[0]);
        AddPart(part + 2 * 256, 2 * 256, to[1]);
      }
    }
  }
  for (int64_t panel = 0; panel * kPanelOuts < tile.num_outs; ++panel) {
    for (int64_t block = 0; block < sums.num_blocks; ++block) {
      FinishTile(tile, tile.out_begin + panel * kPanelOuts, tile.row_begin + block * 16,
                 {sums.At(panel, block), 16});
    }
  }
}

template <DType kType, AmxX kX>
void MulTile(const MatmulTile& tile) {
  if constexpr (kX == AmxX::kRounded) {
    if (tile.num_rows > kAmxTileRows) return PairTile<kType>(tile);
  }
  if (tile.num_rows <= 16) return StreamTile<kType, kX, 1>(tile);
  tile.num_rows <= 32 ? StreamTile<kType, kX, 2>(tile) : StreamTile<kType, kX, 4>(tile);
}

// Calls `use` with the type of the weights. Requires: one that becomes floats.
template <typename Use>
void WithFloats(DType dtype, Use use) {
  if (dtype == DType::kF16) return use.template operator()<DType::kF16>();
  if (dtype == DType::kBF16) return use.template operator()<DType::kBF16>();
  WithParts(dtype, use);
}

void MulSplitTile(const MatmulTile& tile) {
  ConfigureTiles(AmxBlockRows(tile.total_rows));
  WithFloats(tile.piece->weight_dtype, [&]<DType kType>() { MulTile<kType, AmxX::kSplit>(tile); });
  ReleaseTiles();
}

void MulRoundedTile(const MatmulTile& tile) {
  ConfigureTiles(AmxBlockRows(tile.total_rows));
  tile.piece->weight_dtype == DType::kF16 ? MulTile<DType::kF16, AmxX::kRounded>(tile)
                                          : MulTile<DType::kBF16, AmxX::kRounded>(tile);
  ReleaseTiles();
}

template <AmxX kX>
void Pack(const PackTask& task) {
  const int64_t step_bytes = AmxStepBytes(task.rows, kX);
  std::byte* to = task.packed + (task.block * AmxStepsK(task.in) + task.step_begin) * step_bytes;
  for (int64_t step = task.step_begin; step < task.step_end; ++step, to += step_bytes) {
    PackStep<kX>(task, step, to);
  }
}

}  // namespace

void PackAmx(const PackTask& task) { Pack<AmxX::kSplit>(task); }
void PackAmxBf16(const PackTask& task) { Pack<AmxX::kRounded>(task); }
void MatmulTileAmx(const MatmulTile& tile) { MulSplitTile(tile); }
void MatmulTileAmxBf16(const MatmulTile& tile) { MulRoundedTile(tile); }

}  // namespace spillway::kernels
