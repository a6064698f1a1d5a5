#include <algorithm>

#include "kernels/matmul.h"
#include "kernels/matmul_isa.h"
#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway::kernels {
namespace {

using TileFunction = void (*)(const MatmulTile&);

TileFunction FunctionOf(Isa isa, DType weight_dtype) {
#if defined(SPILLWAY_X86)
  if (HasTiles(isa) && IsQuantised(weight_dtype)) return MatmulTileAmxGroups;
  if (isa == Isa::kAmxBf16) return MatmulTileAmxBf16;
  if (isa == Isa::kAmx) return MatmulTileAmx;
  if (isa == Isa::kAvx512) return MatmulTileAvx512;
  if (isa == Isa::kAvx2) return MatmulTileAvx2;
#endif
  static_cast<void>(isa), static_cast<void>(weight_dtype);
  return MatmulTilePortable;
}

// How a call is cut into tiles. Any cut gives the same bits; this one is for the caches and for
// even work.
struct Grid {
  int64_t tile_rows;
  int64_t tile_outs;
  int64_t row_tiles;

  Grid(const MatmulArgs& args, Isa isa, int num_threads) {
    const bool amx = HasTiles(isa);
    const int64_t max_rows = amx ? kAmxTileRows : kSimdTileRows;
    const int64_t row_grain = amx ? 32 : 12;  // whole register blocks
    // Tiles, for even work. With few rows memory is the limit, and workers differ more.
    const bool few_rows = args.rows <= 32;
    const int64_t per_thread = few_rows ? 32 : 4;
    const int64_t amx_grain = few_rows ? kAmxFewRowsOutGrain : kAmxOutGrain;
    const int64_t out_grain = amx ? amx_grain : kSimdTileOuts;
    const int64_t wanted = num_threads == 1 ? 1 : per_thread * num_threads;
    row_tiles = DivideUp(args.rows, max_rows);
    tile_outs = amx ? kAmxTileOuts : kSimdTileOuts;
    while (tile_outs > out_grain && row_tiles * OutTiles(args) < wanted) tile_outs -= out_grain;
    if (row_tiles * OutTiles(args) <
        wanted) {  // few outputs and many threads: cut the rows as well
      const int64_t most = args.rows / (2 * row_grain);
      row_tiles = std::max(row_tiles,
                           std::min(most, DivideUp(wanted, std::max<int64_t>(1, OutTiles(args)))));
    }
    tile_rows = std::min(max_rows, RoundUp(DivideUp(args.rows, row_tiles), row_grain));
    row_tiles = DivideUp(args.rows, tile_rows);
  }
  int64_t OutTiles(const MatmulArgs& args) const {
    int64_t count = 0;
    for (const MatmulPiece& piece : args.pieces) count += DivideUp(piece.num_out, tile_outs);
    return count;
  }
};

// Packs x once for all tiles (HasTiles).
void PackX(const MatmulArgs& args, DType weight_dtype, std::byte* packed, ThreadPool& pool,
           Isa isa) {
#if defined(SPILLWAY_X86)
  const bool groups = IsQuantised(weight_dtype);
  const auto pack = groups ? PackAmxGroups : isa == Isa::kAmxBf16 ? PackAmxBf16 : PackAmx;
  const int64_t task_steps = groups ? 8 : 16;  // 16 rows * 512 k: about 5 us
  const int64_t steps = groups ? AmxNumGroups(args.in) : AmxStepsK(args.in);
  const int64_t step_tasks = DivideUp(steps, task_steps);
  auto task = [&](int64_t index, int /*worker*/) {
    const int64_t begin = index % step_tasks * task_steps;
    pack({args.x, args.x_stride, args.rows, args.in, weight_dtype, index / step_tasks, begin,
          std::min(steps, begin + task_steps), packed});
  };
  const int64_t num_tasks =
      step_tasks * (groups ? AmxGroupBlocks(args.rows) : AmxNumBlocks(args.rows));
  constexpr int64_t kInlineElements = 16384;  // cheaper than waking the pool
  if (args.rows * args.in > kInlineElements) return pool.Run(num_tasks, task);
  for (int64_t index = 0; index < num_tasks; ++index) task(index, 0);
#else
  static_cast<void>(args), static_cast<void>(weight_dtype), static_cast<void>(packed),
      static_cast<void>(pool), static_cast<void>(isa);
#endif
}

// Every piece with weights of `dtype`, or all of them.
struct PieceFilter {
  bool all;
  DType dtype;
  bool Takes(const MatmulPiece& piece) const { return all || piece.weight_dtype == dtype; }
};

// Of x, whatever the weights; whole lines.
int64_t PackedBytes(int64_t rows, int64_t in, Isa isa) {
  if (!HasTiles(isa)) return 0;
  const AmxX x = isa == Isa::kAmxBf16 ? AmxX::kRounded : AmxX::kSplit;
  return RoundUp(std::max(AmxPackedBytes(rows, in, x), AmxGroupPackedBytes(rows, in)), 64);
}

// Of a worker.
int64_t ScratchBytes(Isa isa) { return HasTiles(isa) ? kAmxScratchBytes : kSimdScratchBytes; }

void RunTiles(const MatmulArgs& args, PieceFilter filter, std::span<std::byte> workspace,
              ThreadPool& pool, Isa isa) {
  const Grid grid(args, isa, pool.num_threads());
  const int64_t packed_bytes = PackedBytes(args.rows, args.in, isa);
  const int64_t scratch_bytes = ScratchBytes(isa);
  const TileFunction function = FunctionOf(isa, filter.dtype);
  int64_t num_tasks = 0;
  for (const MatmulPiece& piece : args.pieces) {
    if (filter.Takes(piece)) num_tasks += DivideUp(piece.num_out, grid.tile_outs) * grid.row_tiles;
  }
  auto task = [&](int64_t index, int worker) {
    const MatmulPiece* piece = args.pieces.data();
    for (;; ++piece) {
      if (!filter.Takes(*piece)) continue;
      const int64_t count = DivideUp(piece->num_out, grid.tile_outs) * grid.row_tiles;
      if (index < count) break;
      index -= count;
    }
    const int64_t row = index % grid.row_tiles * grid.tile_rows;
    const int64_t out = index / grid.row_tiles * grid.tile_outs;
    function(
        {args.x, args.x_stride, args.in, args.activation, piece, row,
         std::min(grid.tile_rows, args.rows - row), out,
         std::min(grid.tile_outs, piece->num_out - out), out + grid.tile_outs * pool.num_threads(),
         workspace.data() + packed_bytes + worker * scratch_bytes, workspace.data(), args.rows});
  };
  pool.Run(num_tasks, task);
}

}  // namespace

int64_t MatmulWorkspaceBytes(int64_t max_rows, int64_t max_in, int num_threads, Isa isa) {
  return PackedBytes(max_rows, max_in, isa) + num_threads * ScratchBytes(isa);
}

void Matmul(const MatmulArgs& args, std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
  if (args.rows == 0) return;
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >=
                 MatmulWorkspaceBytes(args.rows, args.in, pool.num_threads(), isa));
  SPILLWAY_CHECK(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0);
  if (!HasTiles(isa)) return RunTiles(args, {true, DType::kF16}, workspace, pool, isa);
  // x is packed for one dtype of weights; calls that mix them pack it again.
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ8, DType::kQ4}) {
    const PieceFilter filter = {false, dtype};
    if (std::none_of(args.pieces.begin(), args.pieces.end(),
                     [&](const auto& piece) { return filter.Takes(piece); })) {
      continue;
    }
    PackX(args, dtype, workspace.data(), pool, isa);
    RunTiles(args, filter, workspace, pool, isa);
  }
}

}  // namespace spillway::kernels
