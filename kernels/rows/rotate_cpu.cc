#include <algorithm>

#include "kernels/kv/key_turns.h"
#include "kernels/rows/rotate.h"
#include "kernels/rows/rotate_isa.h"
#include "kernels/rows/row_tasks.h"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

auto RowFunction(Isa isa) {
#if defined(SPILLWAY_X86)
  if (isa >= Isa::kAvx512) return RotateRowAvx512;
  if (isa == Isa::kAvx2) return RotateRowAvx2;
#endif
  static_cast<void>(isa);
  return RotateRowPortable;
}

void MakeTurns(const RotateArgs& args, int64_t row, RowTurns& turns) {
  const bool halves = args.pairs == RopePairs::kHalves;
  const auto position = static_cast<float>(args.positions[row]);
  const int64_t table = args.tables == nullptr ? 0 : args.tables[row];
  const float* frequencies = args.inverse_frequencies + table * (args.dims / 2);
  for (int64_t pair = 0; pair < args.dims / 2; ++pair) {
    const auto [cosine, sine] = TurnOf(position, frequencies[pair], args.factor);
    if (halves) {
      turns.cosines[pair] = cosine;
      turns.sines[pair] = sine;
    } else {
      turns.cosines[2 * pair] = turns.cosines[2 * pair + 1] = cosine;
      turns.sines[2 * pair] = -sine;
      turns.sines[2 * pair + 1] = sine;
    }
  }
}

}  // namespace

void Rotate(const RotateArgs& args, ThreadPool& pool, Isa isa) {
  SPILLWAY_CHECK(args.dims % 2 == 0 && args.dims <= std::min(args.head_dim, kMaxRotaryDims));
  constexpr int64_t kTaskElements = 16384;
  const auto row_function = RowFunction(isa);
  ForRowTasks(pool, args.rows, args.num_heads * args.dims, kTaskElements,
              [&](int64_t begin, int64_t end) {
                RowTurns turns;
                for (int64_t row = begin; row < end; ++row) {
                  MakeTurns(args, row, turns);
                  row_function(args, turns, args.x + row * args.x_stride);
                }
              });
}

}  // namespace spillway::kernels
