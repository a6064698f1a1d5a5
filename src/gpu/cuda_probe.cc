#include "src/gpu/cuda_probe.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernels/attention/budget_attention.h"
#include "kernels/attention/kv_append.h"
#include "kernels/attention/kv_compact.h"
#include "kernels/attention/prefill_attention.h"
#include "kernels/matmul/matmul_workspace.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/random_fill.h"
#include "spillway/error.h"
#include "spillway/kv_block.h"
#include "spillway/round.h"
#include "src/base/clock.h"
#include "src/cuda/check.h"
#include "src/memory/arena_layout.h"

namespace spillway {
namespace {

constexpr int64_t kAlign = 256;
constexpr int64_t kMaxPrompts = 4;
constexpr int64_t kTiny = 64;             // width of a layer of no arithmetic
constexpr int64_t kPieceBytes = 2 << 20;  // of a copy, as tiles and runs are cut
constexpr int64_t kPieces = 32;
constexpr int64_t kLayers = 16;
constexpr int kFillers = 8;  // copies that last longer than the host takes to enqueue the rest
// Repeats of one measurement: enough that a millisecond or so of work is timed.
constexpr int64_t kFewRepeats = 4;
constexpr int64_t kManyRepeats = 32;
constexpr int64_t kManyRows = 64;  // products of this many rows or more take long

// A row's cache where tokens are evicted: a fifth of its slots, half and half.
KvKeep KeepOf(int64_t slots) {
  return {0, std::max<int64_t>(1, slots / 10), std::max<int64_t>(1, slots / 10)};
}

int64_t KeptSlots(int64_t slots) { return RoundUp(KeepOf(slots).slots() + 1, kKvBlockSlots); }

}  // namespace

CudaProbe::CudaProbe(const Sizes& sizes, int gpu)
    : sizes_(sizes),
      memory_([&] {
        ArenaLayout regions(kAlign);
        const int64_t heads = sizes.hidden / sizes.head_dim;
        const AttentionLimits limits = {sizes.decode_rows, sizes.rows,
                                        sizes.decode_rows * sizes.slots, sizes.slots};
        far_ = regions.Take(sizes.far_bytes);
        qkv_ = regions.TakeFloats(std::max({sizes.norm_rows, 3 * sizes.rows, sizes.product_rows}),
                                  sizes.hidden);
        out_ = regions.TakeFloats(std::max({sizes.norm_rows, sizes.rows, sizes.product_rows}),
                                  sizes.hidden);
        matmul_ = regions.Take(kernels::GpuMatmulWorkspaceBytes(sizes.product_rows, sizes.hidden));
        partials_ = regions.TakeFloats(
            kernels::MaxDecodeItems(sizes.decode_rows, sizes.decode_rows * sizes.slots),
            kernels::PartialFloats(heads, sizes.head_dim));
        scores_ = regions.TakeFloats(4 * std::max(heads, sizes.rows), sizes.slots);
        weights_ = regions.TakeFloats(sizes.decode_rows * heads, KeptSlots(sizes.slots));
        lists_ = regions.Take(AttentionLists::MaxBytes(limits, kMaxPrompts));
        return regions.end();
      }()),
      host_(sizes.host_bytes),
      copies_(computes_, gpu) {
  SPILLWAY_CHECK(sizes.slots <= sizes.rows);  // a prompt that fills its slots
  FillMemory();
}

// Fills memory with small numbers, so that no sum leaves fp16 and the GPU has as much to do as with
// a model's.
void CudaProbe::FillMemory() {
  Fill({0, memory_.bytes()}, DType::kF16);
  for (const Region& region : {qkv_, out_, scores_, weights_}) Fill(region, DType::kF32);
}

// One part is random, and the rest repeats it.
void CudaProbe::Fill(const Region& region, DType dtype) {
  const std::span<std::byte> part = host_.View({0, std::min(host_.bytes(), region.bytes)});
  const auto step = static_cast<int64_t>(part.size());
  kernels::FillUniform(part, dtype, 7, 0, 0.05F);
  Stream& stream = computes_.stream();
  for (int64_t at = 0; at < region.bytes; at += step) {
    const int64_t bytes = std::min(step, region.bytes - at);
    CudaCheck(
        cudaMemcpyAsync(Of<std::byte>({region.offset + at, bytes}), part.data(),
                        static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream.get()),
        "filling GPU memory");
  }
  stream.Record(end_);
  end_.Wait();
}

std::byte* CudaProbe::NextFar(int64_t bytes) {
  SPILLWAY_CHECK(bytes <= far_.bytes);
  if (next_far_ + bytes > far_.bytes) next_far_ = 0;
  std::byte* const begin = Of<std::byte>({far_.offset + next_far_, bytes});
  next_far_ += RoundUp(bytes, kAlign);
  return begin;
}

GpuProbe::Work CudaProbe::Timed(double units, const std::function<void()>& enqueue) {
  Stream& stream = computes_.stream();
  for (int filler = 0; filler < kFillers; ++filler) CopyWithin();
  stream.Record(begin_);
  enqueue();
  stream.Record(end_);
  end_.Wait();
  return {units, end_.SecondsSince(begin_)};
}

GpuProbe::Work CudaProbe::Copy(bool inward) {
  constexpr int64_t kInFlight = 8;
  std::array<DeviceCopy, kInFlight> copies;
  const int64_t piece = std::min(kPieceBytes, host_.bytes());
  const double begin_s = NowSeconds();
  for (int64_t copy = 0; copy < kPieces + kInFlight; ++copy) {
    DeviceCopy& place = copies[static_cast<std::size_t>(copy % kInFlight)];
    if (copy >= kInFlight) copies_.Finish(place);
    if (copy >= kPieces) continue;
    std::byte* host = host_.View({copy % (host_.bytes() / piece) * piece, piece}).data();
    std::byte* there = NextFar(piece);
    place = {inward ? there : host, inward ? host : there, piece, 0, 0};
    copies_.Begin(place);
  }
  return {static_cast<double>(kPieces * piece), NowSeconds() - begin_s};
}

GpuProbe::Work CudaProbe::CopyToGpu() { return Copy(true); }
GpuProbe::Work CudaProbe::CopyFromGpu() { return Copy(false); }

void CudaProbe::CopyWithin() {
  const int64_t half = far_.bytes / 2;
  CudaCheck(cudaMemcpyAsync(Of<std::byte>({far_.offset + half, half}),
                            Of<std::byte>({far_.offset, half}), static_cast<std::size_t>(half),
                            cudaMemcpyDeviceToDevice, computes_.stream().get()),
            "a copy within the GPU");
}

GpuProbe::Work CudaProbe::ReadMemory() {
  return Timed(static_cast<double>(far_.bytes / 2 * 2), [&] { CopyWithin(); });
}

kernels::GpuMatmul& CudaProbe::MatmulOf(const Product& product) {
  const auto found = products_.find(product);
  if (found != products_.end()) return found->second;
  const std::array<int64_t, 1> widths = {product.width};
  kernels::GpuMatmul& made =
      products_
          .emplace(std::piecewise_construct, std::forward_as_tuple(product),
                   std::forward_as_tuple(widths, product.weights, sizes_.product_rows))
          .first->second;
  made.ChooseForManyRows(memory_.View(matmul_), computes_.stream());
  return made;
}

void CudaProbe::MultiplyOnce(int64_t rows, const Product& product) {
  const int64_t width = product.width;
  kernels::MatmulPiece piece;
  piece.weight = NextFar(width * RowBytes(product.weights, width));
  piece.weight_dtype = product.weights;
  piece.num_out = width;
  piece.y = Of<float>(out_);
  piece.y_stride = width;
  kernels::MatmulArgs args;
  args.x = Of<float>(qkv_);
  args.x_stride = width;
  args.rows = rows;
  args.in = width;
  args.pieces = {&piece, 1};
  MatmulOf(product).MatmulAsync(args, memory_.View(matmul_), computes_.stream());
}

GpuProbe::Work CudaProbe::Multiply(int64_t rows, int64_t width, DType weights) {
  SPILLWAY_CHECK(rows <= sizes_.product_rows && width <= sizes_.hidden);
  const int64_t repeats = rows < kManyRows ? kManyRepeats : kFewRepeats;
  static_cast<void>(MatmulOf({width, weights}));  // the choice of an algorithm is not timed
  return Timed(2.0 * static_cast<double>(repeats * rows * width * width), [&] {
    for (int64_t repeat = 0; repeat < repeats; ++repeat) MultiplyOnce(rows, {width, weights});
  });
}

ChunkRows CudaProbe::Upload(const AttentionLists& lists) {
  Stream& stream = computes_.stream();
  std::byte* to = Of<std::byte>(lists_);
  std::byte* from = host_.View({0, lists_.bytes}).data();
  int64_t at = 0;
  const auto put = [&]<typename T>(const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    std::ranges::copy(bytes, from + at);
    const std::span<const T> there = {reinterpret_cast<const T*>(to + at), values.size()};
    at += RoundUp(static_cast<int64_t>(bytes.size()), 64);
    return there;
  };
  const ChunkRows there = PutLists(lists, put);
  SPILLWAY_CHECK(at <= lists_.bytes);
  CudaCheck(
      cudaMemcpyAsync(to, from, static_cast<std::size_t>(at), cudaMemcpyHostToDevice, stream.get()),
      "uploading lists");
  stream.Record(end_);
  end_.Wait();
  return there;
}

kernels::PrefillAttentionArgs CudaProbe::Prefill(const ChunkRows& lists, int64_t head_dim) const {
  const int64_t heads = sizes_.hidden / head_dim;
  kernels::PrefillAttentionArgs args;
  args.q = Of<float>(qkv_);
  args.q_stride = 3 * sizes_.hidden;
  args.out = Of<float>(out_);
  args.out_stride = sizes_.hidden;
  args.rows = lists.rows.data();
  args.tiles = lists.tiles.data();
  args.num_tiles = std::ssize(lists.tiles);
  args.num_heads = heads;
  args.layout = kernels::FullKvLayout(heads, head_dim);
  args.scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  return args;
}

void CudaProbe::Append(const kernels::PrefillAttentionArgs& prefill, const ChunkRows& lists,
                       int64_t tokens) {
  const float* k = prefill.q + sizes_.hidden;
  kernels::KvAppendAsync({k, k + sizes_.hidden, prefill.q_stride, tokens, lists.rows.data(),
                          std::ssize(lists.rows), prefill.layout, prefill.kv_dtype},
                         computes_.stream());
}

GpuProbe::Work CudaProbe::AttendPrefill(int64_t head_dim, int64_t prompt_tokens) {
  const int64_t prompts = sizes_.rows / prompt_tokens;
  SPILLWAY_CHECK(prompts >= 1 && prompts <= kMaxPrompts);
  const int64_t row_bytes = prompt_tokens * KvSlotBytes(sizes_.hidden / head_dim, head_dim);
  AttentionLists lists({prompts, sizes_.rows, sizes_.rows, 0});
  for (int64_t row = 0; row < prompts; ++row) {
    lists.Add({Of<std::byte>({far_.offset + row * row_bytes, row_bytes}), prompt_tokens, 0,
               prompt_tokens, row * prompt_tokens, nullptr},
              RowPhase::kPrompt);
  }
  const ChunkRows there = Upload(lists);
  const kernels::PrefillAttentionArgs args = Prefill(there, head_dim);
  const int64_t pairs = prompts * (prompt_tokens * (prompt_tokens + 1) / 2);
  return Timed(4.0 * static_cast<double>(kFewRepeats * pairs * sizes_.hidden), [&] {
    for (int64_t repeat = 0; repeat < kFewRepeats; ++repeat) {
      Append(args, there, prompts * prompt_tokens);
      kernels::PrefillAttentionAsync(args, computes_.stream());
    }
  });
}

kernels::DecodeAttentionArgs CudaProbe::Decode(const ChunkRows& lists) const {
  const kernels::PrefillAttentionArgs plain = Prefill(lists, sizes_.head_dim);
  return {plain.q,
          plain.q_stride,
          plain.out,
          plain.out_stride,
          plain.rows,
          lists.items.data(),
          std::ssize(lists.items),
          Of<float>(partials_),
          plain.num_heads,
          plain.layout,
          plain.scale,
          plain.soft_cap,
          plain.sinks,
          plain.kv_dtype};
}

GpuProbe::Work CudaProbe::AttendDecode() {
  const int64_t row_bytes =
      sizes_.slots * KvSlotBytes(sizes_.hidden / sizes_.head_dim, sizes_.head_dim);
  AttentionLists lists(
      {sizes_.decode_rows, sizes_.decode_rows, sizes_.decode_rows * sizes_.slots, 0});
  for (int64_t row = 0; row < sizes_.decode_rows; ++row) {
    lists.Add({Of<std::byte>({far_.offset + row * row_bytes, row_bytes}), sizes_.slots,
               sizes_.slots - 1, 1, row, nullptr},
              RowPhase::kDecode);
  }
  const ChunkRows there = Upload(lists);
  return Timed(static_cast<double>(kFewRepeats * sizes_.decode_rows * row_bytes), [&] {
    for (int64_t repeat = 0; repeat < kFewRepeats; ++repeat) {
      Append(Prefill(there, sizes_.head_dim), there, sizes_.decode_rows);
      kernels::DecodeAttentionAsync(Decode(there), computes_.stream());
    }
  });
}

GpuProbe::Work CudaProbe::EvictPrefill() {
  const int64_t tokens = sizes_.slots;
  const int64_t heads = sizes_.hidden / sizes_.head_dim;
  const int64_t prompt_bytes = tokens * KvSlotBytes(heads, sizes_.head_dim);
  const int64_t kept_bytes = KeptSlots(tokens) * KvSlotBytesWithState(heads, sizes_.head_dim);
  std::byte* const prompt = Of<std::byte>({far_.offset, prompt_bytes});
  std::byte* const kept = Of<std::byte>({far_.offset + RoundUp(prompt_bytes, kAlign), kept_bytes});
  float* const scores = Of<float>(scores_);
  AttentionLists lists({1, tokens, tokens, tokens});
  lists.Add({prompt, tokens, 0, tokens, 0, scores}, RowPhase::kPrompt);
  lists.Add(kernels::KvCompactRow{prompt, scores, tokens, kept, KeptSlots(tokens), KeepOf(tokens)});
  const ChunkRows there = Upload(lists);
  kernels::PrefillAttentionArgs args = Prefill(there, sizes_.head_dim);
  const int64_t part = std::max(heads, sizes_.rows) * tokens;  // of scores_
  args.log_sums = scores + part;
  Stream& stream = computes_.stream();
  const int64_t pairs = tokens * (tokens + 1) / 2;
  return Timed(4.0 * static_cast<double>(kFewRepeats * pairs * sizes_.hidden), [&] {
    for (int64_t repeat = 0; repeat < kFewRepeats; ++repeat) {
      Append(args, there, tokens);
      kernels::PrefillAttentionAsync(args, stream);
      kernels::PrefillScoresAsync(
          {args, there.key_tiles.data(), std::ssize(there.key_tiles), tokens}, stream);
      kernels::KvCompactAsync(
          {{there.compact_rows, KvPolicyKind::kH2o, tokens, heads, heads, sizes_.head_dim},
           tokens,
           scores + 2 * part,
           reinterpret_cast<int32_t*>(scores + 3 * part)},
          stream);
    }
  });
}

// Rows are one token short of their budget, so that no call depends on what the one before it left.
GpuProbe::Work CudaProbe::EvictDecode() {
  const int64_t heads = sizes_.hidden / sizes_.head_dim;
  const KvKeep keep = KeepOf(sizes_.slots);
  const int64_t kept_slots = KeptSlots(sizes_.slots);
  const int64_t row_bytes = kept_slots * KvSlotBytesWithState(heads, sizes_.head_dim);
  AttentionLists lists({sizes_.decode_rows, sizes_.decode_rows, 0, 0});
  for (int64_t row = 0; row < sizes_.decode_rows; ++row) {
    lists.Add(kernels::BudgetAttentionRow{Of<std::byte>({far_.offset + row * row_bytes, row_bytes}),
                                          kept_slots, keep.slots() - 1, sizes_.slots, keep, row});
  }
  const ChunkRows there = Upload(lists);
  const kernels::PrefillAttentionArgs plain = Prefill(there, sizes_.head_dim);
  const float* k = plain.q + sizes_.hidden;
  const kernels::AttentionTensors tensors = {.q = plain.q,
                                             .k = k,
                                             .v = k + sizes_.hidden,
                                             .qkv_stride = plain.q_stride,
                                             .out = plain.out,
                                             .out_stride = plain.out_stride,
                                             .num_heads = heads,
                                             .num_kv_heads = heads,
                                             .head_dim = sizes_.head_dim,
                                             .scale = plain.scale};
  const int64_t bytes = sizes_.decode_rows * keep.slots() * KvSlotBytes(heads, sizes_.head_dim);
  return Timed(static_cast<double>(kFewRepeats * bytes), [&] {
    for (int64_t repeat = 0; repeat < kFewRepeats; ++repeat) {
      kernels::BudgetAttentionAsync(
          {{tensors, there.budget_rows, KvPolicyKind::kH2o}, Of<float>(weights_), kept_slots},
          computes_.stream());
    }
  });
}

GpuProbe::Work CudaProbe::Normalize() {
  const int64_t width = sizes_.hidden;
  return Timed(static_cast<double>(kFewRepeats * sizes_.norm_rows * width), [&] {
    for (int64_t repeat = 0; repeat < kFewRepeats; ++repeat) {
      kernels::NormAsync({Of<float>(qkv_), width, Of<float>(out_), width, sizes_.norm_rows, width,
                          nullptr, nullptr},
                         computes_.stream());
    }
  });
}

// Enqueues what the executor does for an attention layer.
void CudaProbe::LaunchLayer(const ChunkRows& lists) {
  Stream& stream = computes_.stream();
  kernels::NormAsync({Of<float>(qkv_), kTiny, Of<float>(out_), kTiny, 1, kTiny, nullptr, nullptr},
                     stream);
  for (int product = 0; product < 4; ++product) MultiplyOnce(1, {kTiny, DType::kF16});
  kernels::KvAppendAsync({Of<float>(qkv_), Of<float>(qkv_), kTiny, 1, lists.rows.data(), 1,
                          kernels::FullKvLayout(1, kTiny), DType::kF16},
                         stream);
  kernels::DecodeAttentionArgs args = Decode(lists);
  args.q_stride = args.out_stride = kTiny;
  args.num_heads = 1;
  args.layout = kernels::FullKvLayout(1, kTiny);
  kernels::DecodeAttentionAsync(args, stream);
}

GpuProbe::Work CudaProbe::Launch() {
  AttentionLists lists({1, 1, kKvBlockSlots, 0});
  lists.Add({Of<std::byte>({far_.offset, kKvBlockSlots * KvSlotBytes(1, kTiny)}), kKvBlockSlots,
             kKvBlockSlots - 1, 1, 0, nullptr},
            RowPhase::kDecode);
  const ChunkRows there = Upload(lists);
  return Timed(static_cast<double>(kLayers), [&] {
    for (int64_t layer = 0; layer < kLayers; ++layer) LaunchLayer(there);
  });
}

}  // namespace spillway
