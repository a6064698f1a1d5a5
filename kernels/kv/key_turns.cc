#include "kernels/kv/key_turns.h"

#include "spillway/error.h"

namespace spillway::kernels {

void FillKeyTurns(const KeyTurnRows& args, ThreadPool& pool) {
  const std::size_t half = args.inverse_frequencies.size();
  SPILLWAY_CHECK(half > 0 && args.rows.size() % (2 * half) == 0);
  auto fill = [&](int64_t index, int) {
    const std::span<float> row = args.rows.subspan(static_cast<std::size_t>(index) * 2 * half);
    const auto position = static_cast<float>(args.first_row + index);
    for (std::size_t pair = 0; pair < half; ++pair) {
      const PairTurn turn = TurnOf(position, args.inverse_frequencies[pair], args.factor);
      row[pair] = turn.cosine;
      row[half + pair] = turn.sine;
    }
  };
  pool.Run(static_cast<int64_t>(args.rows.size() / (2 * half)), fill);
}

}  // namespace spillway::kernels
