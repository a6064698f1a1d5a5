#include "kernels/convert/packed_index.h"  // PlaceOfCode
#include "kernels/kv/kv_layout.h"          // PieceOfRow
#include "kernels/rows/embedding.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kThreads = 128;

enum class Mode { kOverwrite, kAdd };

// The row of this block's token.
__device__ const std::byte* TableRow(const EmbeddingArgs& args, int64_t row_bytes) {
  const EmbeddingPiece* pieces = args.pieces.data();
  const int64_t row = args.first_row + args.ids.data()[blockIdx.x];
  const auto num_pieces = static_cast<int64_t>(args.pieces.size());
  const EmbeddingPiece& piece = pieces[PieceOfRow(pieces, num_pieces, row)];
  return static_cast<const std::byte*>(piece.rows) + (row - piece.row_begin) * row_bytes;
}

// One block a token.
template <typename T, Mode mode>
__global__ void __launch_bounds__(kThreads) EmbeddingKernel(const EmbeddingArgs args) {
  const T* from = reinterpret_cast<const T*>(TableRow(args, args.cols * int64_t{sizeof(T)}));
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const float value = Widen(from[col]);
    y[col] = mode == Mode::kAdd ? y[col] + value : args.scale * value;
  }
}

// One block a token; the FMA of the CPU.
template <DType kDType>
__global__ void __launch_bounds__(kThreads) PackedEmbeddingKernel(const EmbeddingArgs args) {
  const auto* groups =
      reinterpret_cast<const uint32_t*>(TableRow(args, RowBytes(kDType, args.cols)));
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const uint32_t* group = groups + col / kGroupWeights * GroupWords(kDType);
    const CodePlace place = PlaceOfCode(kDType, static_cast<int>(col % kGroupWeights));
    constexpr auto kMask = static_cast<uint32_t>(MaxCode(kDType));
    const uint32_t code = group[GroupHeadWords(kDType) + place.word] >> place.shift & kMask;
    const auto* minimum_and_step = reinterpret_cast<const __half*>(group);
    const float value =
        __fmaf_rn(static_cast<float>(code), Widen(minimum_and_step[1]), Widen(minimum_and_step[0]));
    y[col] = args.scale * value;
  }
}

void LaunchPacked(const EmbeddingArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.dtype == DType::kQ8 || args.dtype == DType::kQ4);  // no table has others
  if (args.ids.empty()) return;
  const auto blocks = static_cast<unsigned>(args.ids.size());
  if (args.dtype == DType::kQ8) {
    LaunchKernel(PackedEmbeddingKernel<DType::kQ8>, blocks, kThreads, args, stream,
                 "embedding launch");
  } else {
    LaunchKernel(PackedEmbeddingKernel<DType::kQ4>, blocks, kThreads, args, stream,
                 "embedding launch");
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
  if (IsQuantised(args.dtype)) return LaunchPacked(args, stream);
  Launch<Mode::kOverwrite>(args, stream);
}

void EmbeddingAddAsync(const EmbeddingArgs& args, Stream& stream) {
  SPILLWAY_CHECK(!IsQuantised(args.dtype) && args.scale == 1.0F);
  Launch<Mode::kAdd>(args, stream);
}

}  // namespace spillway::kernels
