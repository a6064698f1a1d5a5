#include <cmath>

#include "kernels/rows/rotate.h"

namespace spillway::kernels {

void RotateRef(const RotateArgs& args) {
  const bool halves = args.pairs == RopePairs::kHalves;
  for (int64_t row = 0; row < args.rows; ++row) {
    const int64_t table = args.tables == nullptr ? 0 : args.tables[row];
    const float* frequencies = args.inverse_frequencies + table * (args.dims / 2);
    for (int64_t pair = 0; pair < args.dims / 2; ++pair) {
      const float angle = static_cast<float>(args.positions[row]) * frequencies[pair];
      const double cosine = std::cos(static_cast<double>(angle)) * args.factor;
      const double sine = std::sin(static_cast<double>(angle)) * args.factor;
      const int64_t first = halves ? pair : 2 * pair;
      const int64_t second = halves ? pair + args.dims / 2 : 2 * pair + 1;
      for (int64_t head = 0; head < args.num_heads; ++head) {
        float* x = args.x + row * args.x_stride + head * args.head_dim;
        const double a = x[first];
        const double b = x[second];
        x[first] = static_cast<float>(a * cosine - b * sine);
        x[second] = static_cast<float>(b * cosine + a * sine);
      }
    }
  }
}

}  // namespace spillway::kernels
