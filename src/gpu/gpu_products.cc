#include "src/gpu/gpu_products.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "kernels/matmul/matmul_fp32.h"
#include "kernels/matmul/matmul_packed.h"
#include "spillway/error.h"
#include "src/gpu/gpu_needs.h"

namespace spillway {
namespace {

// Of all products of a layer.
std::size_t MostPieces(const Plan& plan) {
  std::size_t most = 0;
  for (const PlannedLayer& layer : plan.layers) {
    std::size_t pieces = 0;
    for (const PlannedTensor& tensor : layer.tensors) pieces += tensor.tiles.size();
    most = std::max(most, pieces);
  }
  return most;
}

}  // namespace

GpuProducts::GpuProducts(const Plan& plan)
    : dtype_(MatrixDType(plan.shape)), matmul_(ProductLengths(plan), dtype_, MaxProductRows(plan)) {
  inner_.reserve(MostPieces(plan));
  alike_.reserve(MostPieces(plan));
}

void GpuProducts::Norm(const kernels::NormArgs& args, const Lane& lane) {
  FinishInner(lane);
  x_ = nullptr;
  if (IsQuantised(dtype_) || args.y != lane.normed) {
    return kernels::NormAsync(args, lane.stream);
  }
  kernels::RoundedNormAsync({args, lane.workspace.data(), dtype_}, lane.stream);
  x_ = args.y;
  workspace_ = lane.workspace.data();
}

void GpuProducts::Multiply(const kernels::MatmulArgs& args, const Lane& lane) {
  if (args.arithmetic == Arithmetic::kFp32) {
    FinishInner(lane);
    return kernels::MatmulFp32Async(args, lane.stream);
  }
  // A rounded x may be in the workspace already, so that it comes first.
  using kernels::FormOfX;
  for (const FormOfX form :
       {FormOfX::kRounded, FormOfX::kPackedFor8Bits, FormOfX::kPackedForFewer}) {
    alike_.clear();
    std::ranges::copy_if(args.pieces, std::back_inserter(alike_), [&](const auto& piece) {
      return kernels::FormOf(piece.weight_dtype) == form;
    });
    if (alike_.empty()) continue;
    kernels::MatmulArgs some = args;
    some.pieces = alike_;
    MultiplyAlike(some, lane);
  }
}

void GpuProducts::MultiplyAlike(const kernels::MatmulArgs& args, const Lane& lane) {
  if (IsQuantised(args.pieces.front().weight_dtype)) return MultiplyPacked(args, lane);
  Round(args, lane);
  matmul_.MultiplyRounded(args, lane.workspace, lane.stream);
  for (const kernels::MatmulPiece& piece : args.pieces) {
    const kernels::FinishArgs finish = kernels::GpuMatmul::FinishOf(args, piece);
    const bool is_inner =
        lane.inner != nullptr && piece.y >= lane.inner && piece.y < lane.inner + piece.y_stride;
    if (is_inner) {
      inner_.push_back(finish);
    } else {
      kernels::FinishAsync(finish, lane.stream);
    }
  }
}

// The packed x takes the place of a rounded one.
void GpuProducts::MultiplyPacked(const kernels::MatmulArgs& args, const Lane& lane) {
  FinishInner(lane);
  kernels::GpuMatmul::MultiplyPacked(args, lane.workspace, lane.stream);
  x_ = nullptr;
}

void GpuProducts::Round(const kernels::MatmulArgs& args, const Lane& lane) {
  if (!inner_.empty() && args.x == lane.inner) return RoundInner(args, lane);
  FinishInner(lane);
  if (x_ != nullptr && args.x == x_ && workspace_ == lane.workspace.data()) return;
  kernels::RoundRowsAsync(
      {args.x, args.x_stride, args.rows, args.in, lane.workspace.data(), dtype_}, lane.stream);
  x_ = nullptr;
}

// Finishes in fp32 what the next product does not read: of parallel residuals another one is
// between.
void GpuProducts::FinishInner(const Lane& lane) {
  for (const kernels::FinishArgs& piece : inner_) kernels::FinishAsync(piece, lane.stream);
  inner_.clear();
}

void GpuProducts::RoundInner(const kernels::MatmulArgs& args, const Lane& lane) {
  int64_t num_cols = 0;
  auto* x = reinterpret_cast<uint16_t*>(lane.workspace.data());
  for (const kernels::FinishArgs& piece : inner_) {
    num_cols += piece.cols;
    kernels::RoundFinishedAsync({piece, x + (piece.y - lane.inner), args.in, dtype_}, lane.stream);
  }
  SPILLWAY_CHECK(num_cols == args.in);
  inner_.clear();
  x_ = nullptr;
}

}  // namespace spillway
