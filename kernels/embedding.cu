#include "kernels/attention_index.h"  // PieceOfRow
#include "kernels/embedding.h"
#include "kernels/launch.cuh"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 128;

enum class Mode { kOverwrite, kAdd };

// One block a token.
template <typename T, Mode mode>
__global__ void __launch_bounds__(kThreads) EmbeddingKernel(const EmbeddingArgs args) {
  const EmbeddingPiece* pieces = args.pieces.data();
  const int64_t row = args.first_row + args.ids.data()[blockIdx.x];
  const auto num_pieces = static_cast<int64_t>(args.pieces.size());
  const EmbeddingPiece& piece = pieces[PieceOfRow(pieces, num_pieces, row)];
  const T* from = static_cast<const T*>(piece.rows) + (row - piece.row_begin) * args.cols;
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const float value = Widen(from[col]);
    y[col] = mode == Mode::kAdd ? y[col] + value : value;
  }
}

template <Mode mode>
void Launch(const EmbeddingArgs& args, Stream& stream) {
  if (args.ids.empty()) return;
  const auto blocks = static_cast<unsigned>(args.ids.size());
  if (args.dtype == DType::kF16) {
    LaunchKernel(EmbeddingKernel<__half, mode>, blocks, kThreads, args, stream, "embedding launch");
  } else {
    LaunchKernel(EmbeddingKernel<__nv_bfloat16, mode>, blocks, kThreads, args, stream,
                 "embedding launch");
  }
}

}  // namespace

void EmbeddingLookupAsync(const EmbeddingArgs& args, Stream& stream) {
  Launch<Mode::kOverwrite>(args, stream);
}

void EmbeddingAddAsync(const EmbeddingArgs& args, Stream& stream) {
  Launch<Mode::kAdd>(args, stream);
}

}  // namespace spillway::kernels
