#include <algorithm>
#include <cstring>

#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_isa.h"
#include "spillway/error.h"
#include "spillway/round.h"

namespace spillway::kernels {
namespace {

// Functions and limits of the products with one type of weights.
struct Method {
  void (*tile)(const MatmulTile&);
  void (*pack)(const PackTask&);  // of x, once for all tiles; nullptr: tiles take it as it is
  int64_t row_grain;              // whole register blocks
  int64_t max_tile_rows;
};

// True of codes that an instruction set multiplies as they are. Tiles add whole groups, which must
// have one step: others become floats there. Numbers of 8 bits are none.
bool MultipliesCodesOf(DType dtype, Isa isa) {
  if (!MultipliesCodes(isa) || !IsQuantised(dtype) || dtype == DType::kFp8) return false;
  return !HasTiles(isa) || PartsOfGroup(dtype) == 1;
}

#if defined(SPILLWAY_X86)
// Requires: MultipliesCodes(isa).
Method MethodOfCodes(Isa isa) {
  if (HasTiles(isa)) {
    return RoundsToBytes(isa) ? Method{MatmulTileAmxBytes, PackAmxBytes, 32, kAmxTileRows}
                              : Method{MatmulTileAmxGroups, PackAmxGroups, 32, kAmxTileRows};
  }
  return RoundsToBytes(isa)
             ? Method{MatmulTileVnniBytes, PackVnniBytes, kVnniBlockRows, kSimdTileRows}
             : Method{MatmulTileVnni, PackVnni, kVnniBlockRows, kSimdTileRows};
}
#endif

Method MethodOf(Isa isa, DType weight_dtype) {
#if defined(SPILLWAY_X86)
  if (MultipliesCodesOf(weight_dtype, isa)) return MethodOfCodes(isa);
  if (HasTiles(isa) && weight_dtype == DType::kFp8)
    return {MatmulTileAmxNumbers, PackAmx, 32, kAmxTileRows};
  if (HasTiles(isa)) {
    return RoundsToBf16(isa) ? Method{MatmulTileAmxBf16, PackAmxBf16, 32, kAmxManyRows}
                             : Method{MatmulTileAmx, PackAmx, 32, kAmxTileRows};
  }
  if (RoundsToBf16(isa)) return {MatmulTileBf16, PackBf16, 12, kSimdTileRows};
  if (isa >= Isa::kAvx512) return {MatmulTileAvx512, nullptr, 12, kSimdTileRows};
  if (isa == Isa::kAvx2) return {MatmulTileAvx2, PackSimd, 12, kAvx2TileRows};
#endif
  static_cast<void>(isa), static_cast<void>(weight_dtype);
  return {MatmulTilePortable, nullptr, 12, kSimdTileRows};
}

// Tiles that a call is cut into. Any cut gives the same bits; this one suits the caches and gives
// even work.
struct Grid {
  int64_t tile_rows;
  int64_t tile_outs;
  int64_t row_tiles;

  Grid(const MatmulArgs& args, Isa isa, const Method& method, int num_threads) {
    const bool amx = HasTiles(isa);
    // Tiles per thread, for even work: more with few rows, where memory is the limit and workers
    // differ more.
    const bool few_rows = args.rows <= 32;
    const int64_t per_thread = few_rows ? 32 : 4;
    const bool many_rows = method.max_tile_rows == kAmxManyRows && args.rows > kAmxTileRows;
    const int64_t amx_grain = few_rows || many_rows ? kAmxLeastOutGrain : kAmxOutGrain;
    const int64_t out_grain = amx ? amx_grain : kSimdTileOuts;
    const int64_t wanted = num_threads == 1 ? 1 : per_thread * num_threads;
    row_tiles = DivideUp(args.rows, method.max_tile_rows);
    tile_outs = many_rows ? kAmxManyRowsOuts : amx ? kAmxTileOuts : kSimdTileOuts;
    while (tile_outs > out_grain && row_tiles * OutTiles(args) < wanted) tile_outs -= out_grain;
    if (row_tiles * OutTiles(args) <
        wanted) {  // few outputs and many threads: cut the rows as well
      const int64_t most = args.rows / (2 * method.row_grain);
      row_tiles = std::max(row_tiles,
                           std::min(most, DivideUp(wanted, std::max<int64_t>(1, OutTiles(args)))));
    }
    tile_rows =
        std::min(method.max_tile_rows, RoundUp(DivideUp(args.rows, row_tiles), method.row_grain));
    row_tiles = DivideUp(args.rows, tile_rows);
  }
  int64_t OutTiles(const MatmulArgs& args) const {
    int64_t count = 0;
    for (const MatmulPiece& piece : args.pieces) count += DivideUp(piece.num_out, tile_outs);
    return count;
  }
};

// The steps of k and the blocks of rows that x is packed by.
struct PackGrid {
  int64_t steps;
  int64_t task_steps;  // some us for a block: more than handing out a task costs
  int64_t blocks;
};

PackGrid PackGridOf(const MatmulArgs& args, DType weight_dtype, Isa isa) {
  if (isa == Isa::kAvx2) return {SimdBlocksK(args.in), 1, DivideUp(args.rows, kSimdPackRows)};
  if (!MultipliesCodesOf(weight_dtype, isa)) {
    if (!HasTiles(isa)) return {Bf16Steps(args.in), 64, Bf16NumGroups(args.rows)};
    return {AmxStepsK(args.in), 16, AmxNumBlocks(args.rows)};
  }
  const int64_t blocks = HasTiles(isa) ? AmxGroupBlocks(args.rows) : VnniNumBlocks(args.rows);
  return {NumGroups(args.in), 8, blocks};
}

// Packs x once for all tiles.
void PackX(const MatmulArgs& args, DType weight_dtype, const Method& method, std::byte* packed,
           ThreadPool& pool, Isa isa) {
  const PackGrid grid = PackGridOf(args, weight_dtype, isa);
  const int64_t step_tasks = DivideUp(grid.steps, grid.task_steps);
  auto task = [&](int64_t index, int /*worker*/) {
    const int64_t begin = index % step_tasks * grid.task_steps;
    method.pack({args.x, args.x_stride, args.rows, args.in, weight_dtype, index / step_tasks, begin,
                 std::min(grid.steps, begin + grid.task_steps), packed});
  };
  const int64_t num_tasks = step_tasks * grid.blocks;
  constexpr int64_t kInlineElements = 16384;  // cheaper than waking the pool
  if (args.rows * args.in > kInlineElements) return pool.Run(num_tasks, task);
  for (int64_t index = 0; index < num_tasks; ++index) task(index, 0);
}

// Bytes of packed x, whatever the type of the weights; whole lines.
int64_t PackedBytes(int64_t rows, int64_t in, Isa isa) {
  if (isa == Isa::kAvx2) return rows > kSimdUnpackedRows ? SimdPackedBytes(rows, in) : 0;
  if (!MultipliesCodes(isa)) return 0;
  const CodedX coded = RoundsToBytes(isa) ? CodedX::kOneByte : CodedX::kTwoBytes;
  const bool rounds = RoundsToBf16(isa);
  if (!HasTiles(isa)) {
    const int64_t bf16 = rounds ? Bf16PackedBytes(rows, in) : 0;
    return std::max(bf16, VnniPackedBytes(rows, in, coded));
  }
  const AmxX x = rounds ? AmxX::kRounded : AmxX::kSplit;
  return RoundUp(std::max(AmxPackedBytes(rows, in, x), AmxGroupPackedBytes(rows, in, coded)), 64);
}

// Bytes of scratch of a worker.
int64_t ScratchBytes(Isa isa) {
  if (!HasTiles(isa)) return kSimdScratchBytes;
  return RoundsToBf16(isa) ? kAmxManyRowsScratchBytes : kAmxScratchBytes;
}

// True: tiles of this many rows read packed x.
bool Packs(const Method& method, Isa isa, int64_t tile_rows) {
  return method.pack != nullptr && (isa != Isa::kAvx2 || tile_rows > kSimdUnpackedRows);
}

// The instruction set without roundings that were asked for.
Isa Fp32Form(Isa isa) {
  if (HasTiles(isa)) return Isa::kAmx;
  return std::min(isa, Isa::kAvx512Vnni);
}

// The instruction set that multiplies such weights.
Isa FormFor(DType weight_dtype, Isa isa) {
  const bool has_numbers = weight_dtype == DType::kFp8;
  if (!has_numbers && PartsOfGroup(weight_dtype) == 1) return isa;
  if (HasTiles(isa)) return Isa::kAmx;  // with many rows twice as fast as without tiles
  if (has_numbers) return std::min(isa, Isa::kAvx512);
  return RoundsToBytes(isa) ? isa : Fp32Form(isa);
}

// Computes the pieces with weights of `dtype`. x is packed for one type; calls that mix types pack
// it again.
void MulPieces(const MatmulArgs& args, DType dtype, std::span<std::byte> workspace,
               ThreadPool& pool, Isa isa) {
  const Method method = MethodOf(isa, dtype);
  const Grid grid(args, isa, method, pool.num_threads());
  const bool packs = Packs(method, isa, grid.tile_rows);
  if (packs) PackX(args, dtype, method, workspace.data(), pool, isa);
  const int64_t packed_bytes = PackedBytes(args.rows, args.in, isa);
  const int64_t scratch_bytes = ScratchBytes(isa);
  int64_t num_tasks = 0;
  for (const MatmulPiece& piece : args.pieces) {
    if (piece.weight_dtype == dtype)
      num_tasks += DivideUp(piece.num_out, grid.tile_outs) * grid.row_tiles;
  }
  auto task = [&](int64_t index, int worker) {
    const bool goes_on = pool.NextTask(index) >= 0;
    const MatmulPiece* piece = args.pieces.data();
    for (;; ++piece) {
      if (piece->weight_dtype != dtype) continue;
      const int64_t count = DivideUp(piece->num_out, grid.tile_outs) * grid.row_tiles;
      if (index < count) break;
      index -= count;
    }
    const int64_t row = index % grid.row_tiles * grid.tile_rows;
    const int64_t out = index / grid.row_tiles * grid.tile_outs;
    const int64_t next_out = (index + goes_on) / grid.row_tiles * grid.tile_outs;
    method.tile({args.x, args.x_stride, args.in, args.activation, piece, row,
                 std::min(grid.tile_rows, args.rows - row), out,
                 std::min(grid.tile_outs, piece->num_out - out), next_out,
                 workspace.data() + packed_bytes + worker * scratch_bytes,
                 packs ? workspace.data() : nullptr, args.rows});
  };
  pool.Run(num_tasks, task);
}

}  // namespace

void PackSimd(const PackTask& task) {
  auto* packed = reinterpret_cast<float*>(task.packed);
  const int64_t row_begin = task.block * kSimdPackRows;
  const int64_t row_end = std::min(task.rows, row_begin + kSimdPackRows);
  for (int64_t step = task.step_begin; step < task.step_end; ++step) {
    const int64_t k = step * kSimdBlockK;
    const auto count = static_cast<size_t>(std::min(kSimdBlockK, task.in - k));
    for (int64_t row = row_begin; row < row_end; ++row) {
      std::memcpy(packed + (step * task.rows + row) * SimdPackedRow(task.in),
                  task.x + row * task.x_stride + k, count * sizeof(float));
    }
  }
}

int64_t MatmulWorkspaceBytes(int64_t max_rows, int64_t max_in, int num_threads, Isa isa) {
  const auto bytes = [&](Isa of) {
    return PackedBytes(max_rows, max_in, of) + num_threads * ScratchBytes(of);
  };
  return std::max(bytes(isa), bytes(Fp32Form(isa)));  // FormFor is one of them, or needs less
}

void Matmul(const MatmulArgs& args, std::span<std::byte> workspace, ThreadPool& pool, Isa isa) {
  if (args.rows == 0) return;
  SPILLWAY_CHECK(static_cast<int64_t>(workspace.size()) >=
                 MatmulWorkspaceBytes(args.rows, args.in, pool.num_threads(), isa));
  SPILLWAY_CHECK(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0);
  if (args.arithmetic == Arithmetic::kFp32) isa = Fp32Form(isa);
  for (auto piece = args.pieces.begin(); piece != args.pieces.end(); ++piece) {
    const DType dtype = piece->weight_dtype;
    const auto is_alike = [dtype](const MatmulPiece& of) { return of.weight_dtype == dtype; };
    if (std::none_of(args.pieces.begin(), piece, is_alike))  // the first of its type
      MulPieces(args, dtype, workspace, pool, FormFor(dtype, isa));
  }
}

}  // namespace spillway::kernels
