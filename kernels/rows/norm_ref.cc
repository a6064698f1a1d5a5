#include <cmath>

#include "kernels/rows/norm.h"

namespace spillway::kernels {

void NormRef(const NormArgs& args) {
  const double cols = static_cast<double>(args.cols);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    const float* plus = args.plus == nullptr ? nullptr : args.plus + row * args.plus_stride;
    double sum = 0;
    for (int64_t i = 0; i < args.cols; ++i) sum += x[i];
    const double mean = args.kind == NormKind::kLayer ? sum / cols : 0.0;
    double squares = 0;
    for (int64_t i = 0; i < args.cols; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / cols + static_cast<double>(args.epsilon));
    for (int64_t i = 0; i < args.cols; ++i) {
      const double weight =
          args.weight != nullptr ? static_cast<double>(args.weight_offset) + args.weight[i] : 1.0;
      const double bias = args.bias != nullptr ? static_cast<double>(args.bias[i]) : 0.0;
      const double more = plus != nullptr ? static_cast<double>(plus[i]) : 0.0;
      y[i] = static_cast<float>((x[i] - mean) * scale * weight + bias + more);
    }
  }
}

void HeadNormRef(const HeadNormArgs& args) {
  for (int64_t row = 0; row < args.rows; ++row) NormRef(args.HeadsOf(row));
}

}  // namespace spillway::kernels
