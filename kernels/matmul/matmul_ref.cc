#include <cmath>
#include <vector>

#include "kernels/convert/convert.h"
#include "kernels/convert/quantise.h"
#include "kernels/matmul/matmul.h"

namespace spillway::kernels {
namespace {

double ActivateRef(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::kGeluTanh: {
      const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1.0 + std::tanh(inner));
    }
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kClampedSwish: {
      const double gate = x > kClampLimit ? kClampLimit : x;
      return gate / (1.0 + std::exp(-static_cast<double>(kSwishSlope) * gate));
    }
    case Activation::kClampedOffset:
      return (x > kClampLimit ? kClampLimit : x < -kClampLimit ? -kClampLimit : x) + 1.0;
  }
  return x;
}

double WeightRef(const std::byte* row, DType dtype, int64_t k) {
  if (IsQuantised(dtype)) return static_cast<double>(DequantiseRef(row, dtype, k));
  const uint16_t bits = reinterpret_cast<const uint16_t*>(row)[k];
  return static_cast<double>(dtype == DType::kF16 ? HalfToFloat(bits) : BFloat16ToFloat(bits));
}

double SumRef(const std::vector<double>& weights, const float* x) {
  double sum = 0;
  for (const double weight : weights) sum += static_cast<double>(*x++) * weight;
  return sum;
}

// One output of all rows.
void OutputRef(const MatmulArgs& args, const MatmulPiece& piece, int64_t out) {
  const std::byte* row_of_weights =
      static_cast<const std::byte*>(piece.weight) + out * RowBytes(piece.weight_dtype, args.in);
  std::vector<double> weights;
  for (int64_t k = 0; k < args.in; ++k)
    weights.push_back(WeightRef(row_of_weights, piece.weight_dtype, k));
  for (int64_t row = 0; row < args.rows; ++row) {
    double sum = SumRef(weights, args.x + row * args.x_stride);
    if (piece.bias != nullptr) sum += static_cast<double>(piece.bias[out]);
    double y = ActivateRef(sum, args.activation);
    if (piece.times != nullptr)
      y *= static_cast<double>(piece.times[row * piece.times_stride + out]);
    if (piece.residual != nullptr)
      y += static_cast<double>(piece.residual[row * piece.residual_stride + out]);
    piece.y[row * piece.y_stride + out] = static_cast<float>(y);
  }
}

}  // namespace

void MatmulRef(const MatmulArgs& args) {
  for (const MatmulPiece& piece : args.pieces) {
    for (int64_t out = 0; out < piece.num_out; ++out) OutputRef(args, piece, out);
  }
}

}  // namespace spillway::kernels
