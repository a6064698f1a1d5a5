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

__device__ float HalfOf(uint32_t word, int half) {
  return Widen(__ushort_as_half(static_cast<unsigned short>(word >> half * 16)));
}

__device__ float CodedOf(const uint32_t* group, int64_t index) {
  return static_cast<float>(reinterpret_cast<const int8_t*>(group)[kCodedScalesAt + index]);
}

// Step and minimum of the part of a group that a weight is in.
template <DType kDType>
__device__ float2 StepAndMinimum(const uint32_t* group, int at) {
  const int part = at * static_cast<int>(PartsOfGroup(kDType)) / static_cast<int>(kGroupWeights);
  if constexpr (HasCodedScales(kDType)) {
    const float step = HalfOf(group[0], 0) * CodedOf(group, part);
    return {step, -HalfOf(group[0], 1) * CodedOf(group, NumCodedScales(kDType) + part)};
  } else if constexpr (HasZeroPoint(kDType)) {
    const float scale = __uint_as_float(group[0] & ~kZeroMask);
    return {scale, -static_cast<float>(group[0] & kZeroMask) * scale};
  } else if constexpr (PartsOfGroup(kDType) == 1) {
    return {HalfOf(group[0], 1), HalfOf(group[0], 0)};
  } else {
    const float scale = HalfOf(group[0], part);
    if constexpr (HasTwoMinimums(kDType)) return {scale, HalfOf(group[kMinimumsAt / 4], part)};
    return {scale, -static_cast<float>(MiddleCode(kDType)) * scale};
  }
}

// Weight `at` of a group, in fp32 as the CPU has it.
template <DType kDType>
__device__ float WeightOf(const uint32_t* group, int at) {
  const uint32_t code = CodeOf(kDType, group + GroupHeadWords(kDType), at);
  if constexpr (kDType == DType::kFp8) {
    const auto bits = static_cast<unsigned short>((code & 127) << 7 | (code & 128) << 8);
    return Widen(__ushort_as_half(bits)) * (kScaleUp * __uint_as_float(group[0]));
  } else {
    const float2 of = StepAndMinimum<kDType>(group, at);
    return __fmaf_rn(static_cast<float>(code), of.x, of.y);
  }
}

// One block a token.
template <DType kDType>
__global__ void __launch_bounds__(kThreads) PackedEmbeddingKernel(const EmbeddingArgs args) {
  const auto* groups =
      reinterpret_cast<const uint32_t*>(TableRow(args, RowBytes(kDType, args.cols)));
  float* y = args.y + blockIdx.x * args.y_stride;
  for (int64_t col = threadIdx.x; col < args.cols; col += kThreads) {
    const uint32_t* group = groups + col / kGroupWeights * GroupWords(kDType);
    y[col] = args.scale * WeightOf<kDType>(group, static_cast<int>(col % kGroupWeights));
  }
}

void LaunchPacked(const EmbeddingArgs& args, Stream& stream) {
  if (args.ids.empty()) return;
  SPILLWAY_CHECK(args.dtype != DType::kMxfp4);  // of experts alone
  const auto blocks = static_cast<unsigned>(args.ids.size());
  WithQuantised(args.dtype, [&]<DType kDType>() {
    if constexpr (kDType != DType::kMxfp4) {
      LaunchKernel(PackedEmbeddingKernel<kDType>, blocks, kThreads, args, stream,
                   "embedding launch");
    }
  });
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
