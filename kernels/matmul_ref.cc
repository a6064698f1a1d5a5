#include <cmath>

#include "kernels/convert.h"
#include "kernels/matmul.h"

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
  }
  return x;
}

void PieceRef(const MatmulArgs& args, const MatmulPiece& piece, int64_t row) {
  const uint16_t* weight = static_cast<const uint16_t*>(piece.weight);
  const auto widen = piece.weight_dtype == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
  for (int64_t out = 0; out < piece.num_out; ++out) {
    double sum = 0;
    for (int64_t k = 0; k < args.in; ++k) {
      sum += static_cast<double>(args.x[row * args.x_stride + k]) *
             static_cast<double>(widen(weight[out * args.in + k]));
    }
    if (piece.bias != nullptr) sum += static_cast<double>(piece.bias[out]);
    double y = ActivateRef(sum, args.activation);
    if (piece.residual != nullptr)
      y += static_cast<double>(piece.residual[row * piece.residual_stride + out]);
    piece.y[row * piece.y_stride + out] = static_cast<float>(y);
  }
}

}  // namespace

void MatmulRef(const MatmulArgs& args) {
  for (const MatmulPiece& piece : args.pieces) {
    for (int64_t row = 0; row < args.rows; ++row) PieceRef(args, piece, row);
  }
}

}  // namespace spillway::kernels
