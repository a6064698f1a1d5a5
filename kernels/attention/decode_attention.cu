#include <cmath>

#include "kernels/attention/decode_attention.h"
#include "kernels/kv/kv_vectors.cuh"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;

// Running softmax of one group of lanes over the slots that it has read, for each of kHeads query
// heads.
template <int kHeads>
struct Running {
  float maximum[kHeads];
  float sum[kHeads];
  float weighted[kHeads][kVectorElements];  // this lane's part of the head's dimensions
};

// `kLanes` lanes hold a key, 8 elements each; kHeads query heads that share it are computed at
// once. Each lane group takes its own slots through a softmax of its own, so that nothing is
// exchanged until the end.
template <typename Format, int kLanes, int kHeads>
struct DecodeTile {
  using Keys = typename Format::Keys;
  using Values = typename Format::Values;
  // Loads of K, and as many of V, in flight before the first is used.
  static constexpr int kLoads = Format::kLoads;
  static constexpr int kGroups = kWarp / kLanes;   // slots of one load
  static constexpr int kStep = kLoads * kGroups;   // slots of a warp's step
  static constexpr int kParts = kWarps * kGroups;  // lane groups of a block
  static constexpr int kPartFloats = kLanes * kVectorElements + 2;

  const DecodeAttentionArgs& args;
  RowSlots row;
  int64_t kv_head;
  int lane_in_key;
  int group;
  bool has_dims;  // false: a lane past the end of head_dim

  // Dimension of element `i` of this lane's vectors of a part.
  template <typename Part>
  __device__ int64_t Element(int i) const {
    return VectorElement<Part::kBits>(lane_in_key, i, args.layout.head_dim);
  }

  template <typename Part>
  __device__ void LoadStep(int64_t first, int64_t end,
                           typename Part::Vector (&vectors)[kLoads]) const {
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      const int64_t slot = first + load * kGroups + group;
      if (slot < end && has_dims) {
        const std::byte* base = row.Base<typename Format::Form>(args.layout, slot);
        vectors[load] =
            Part::template Load<ReadOnly>(base, args.layout, {kv_head, slot, lane_in_key});
      }
    }
  }

  __device__ void Step(const float (&q)[kHeads][kVectorElements], int64_t first, int64_t end,
                       Running<kHeads>& running) const {
    typename Keys::Vector keys[kLoads];
    typename Values::Vector values[kLoads];
    LoadStep<Keys>(first, end, keys);
    LoadStep<Values>(first, end, values);
    float scores[kHeads][kLoads];
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      float key[kVectorElements];
      Keys::Widen(keys[load], key);
      const int64_t slot = first + load * kGroups + group;
      const bool is_slot = slot < end;
      if (is_slot && has_dims)
        AddMean<Keys>(args.means, {kv_head, slot, lane_in_key}, slot, args.layout.head_dim, key);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        float dot = 0.0F;
#pragma unroll
        for (int i = 0; i < kVectorElements; ++i) dot = fmaf(q[head][i], key[i], dot);
        dot = SumOverLanes<kLanes>(dot);
        scores[head][load] = is_slot ? SoftCapped(dot, args.soft_cap) : -INFINITY;
      }
    }
#pragma unroll
    for (int head = 0; head < kHeads; ++head) {
      float maximum = running.maximum[head];
#pragma unroll
      for (int load = 0; load < kLoads; ++load) maximum = fmaxf(maximum, scores[head][load]);
      // Groups that have read no slot have a maximum of -inf, and -inf - -inf would be NaN.
      const float base = maximum == -INFINITY ? 0.0F : maximum;
      const float shrink = __expf(running.maximum[head] - base);
      running.maximum[head] = maximum;
      running.sum[head] *= shrink;
#pragma unroll
      for (float& weighted : running.weighted[head]) weighted *= shrink;
#pragma unroll
      for (int load = 0; load < kLoads; ++load)
        scores[head][load] = __expf(scores[head][load] - base);
    }
#pragma unroll
    for (int load = 0; load < kLoads; ++load) {
      float value[kVectorElements];
      Values::Widen(values[load], value);
#pragma unroll
      for (int head = 0; head < kHeads; ++head) {
        running.sum[head] += scores[head][load];
#pragma unroll
        for (int i = 0; i < kVectorElements; ++i) {
          running.weighted[head][i] = fmaf(scores[head][load], value[i], running.weighted[head][i]);
        }
      }
    }
  }
};

// grid: (item, KV head * group tiles). One split of a row's keys for kHeads query heads.
template <typename Format, int kLanes, int kHeads>
__global__ void __launch_bounds__(kThreads) DecodeKernel(const DecodeAttentionArgs args) {
  using Tile = DecodeTile<Format, kLanes, kHeads>;
  __shared__ float parts[Tile::kParts][kHeads][Tile::kPartFloats];
  const DecodeItem item = args.items[blockIdx.x];
  const AttentionRow& row = args.rows[item.row];
  const int64_t group_size = args.num_heads / args.layout.num_kv_heads;
  const int64_t tiles = (group_size + kHeads - 1) / kHeads;
  const int64_t kv_head = blockIdx.y / tiles;
  const int64_t first_in_group = blockIdx.y % tiles * kHeads;
  const int64_t first_head = kv_head * group_size + first_in_group;
  const int64_t left = group_size - first_in_group;
  const int num_heads = static_cast<int>(left < kHeads ? left : kHeads);
  const int64_t dim = args.layout.head_dim;
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const Tile tile = {args,          SlotsOf(row),  kv_head,
                     lane % kLanes, lane / kLanes, lane % kLanes * kVectorElements < dim};

  float q[kHeads][kVectorElements];
  Running<kHeads> running;
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    running.maximum[head] = -INFINITY;
    running.sum[head] = 0.0F;
    const float* from = args.q + row.token_offset * args.q_stride + (first_head + head) * dim;
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      running.weighted[head][i] = 0.0F;
      const bool is_there = tile.has_dims && head < num_heads;
      q[head][i] =
          is_there ? from[tile.template Element<typename Format::Keys>(i)] * args.scale : 0.0F;
    }
  }
  const int64_t num_keys = row.num_past + 1;
  const SlotRange range = SplitRange(item.split, num_keys);
  for (int64_t first = range.begin + warp * Tile::kStep; first < range.end;
       first += kWarps * Tile::kStep) {
    tile.Step(q, first, range.end, running);
  }

  const int part = warp * Tile::kGroups + tile.group;
#pragma unroll
  for (int head = 0; head < kHeads; ++head) {
    float* to = parts[part][head];
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      const int64_t d = tile.template Element<typename Format::Values>(i);
      if (tile.has_dims) to[d] = running.weighted[head][i];
    }
    if (tile.lane_in_key == 0) {
      to[Tile::kPartFloats - 2] = running.maximum[head];
      to[Tile::kPartFloats - 1] = running.sum[head];
    }
  }
  __syncthreads();

  // A thread for each dimension of each head; parts in their order.
  for (int64_t at = threadIdx.x; at < num_heads * dim; at += kThreads) {
    const int64_t head = at / dim;
    const int64_t d = at % dim;
    const bool is_whole = NumSplits(num_keys) == 1;  // else the sink is CombineKernel's
    const float sink = is_whole ? SinkOf(args.sinks, first_head + head) : -INFINITY;
    float maximum = sink;
    for (int p = 0; p < Tile::kParts; ++p) {
      maximum = fmaxf(maximum, parts[p][head][Tile::kPartFloats - 2]);
    }
    float sum = __expf(sink - maximum);
    float weighted = 0.0F;
    for (int p = 0; p < Tile::kParts; ++p) {
      const float weight = __expf(parts[p][head][Tile::kPartFloats - 2] - maximum);
      sum = fmaf(weight, parts[p][head][Tile::kPartFloats - 1], sum);
      weighted = fmaf(weight, parts[p][head][d], weighted);
    }
    if (is_whole) {
      args.out[row.token_offset * args.out_stride + (first_head + head) * dim + d] = weighted / sum;
      continue;
    }
    float* partial = args.partials + blockIdx.x * PartialFloats(args.num_heads, dim) +
                     (first_head + head) * (dim + 2);
    partial[d] = weighted;
    if (d == 0) {
      partial[dim] = maximum;
      partial[dim + 1] = sum;
    }
  }
}

// grid: (item, head). The first item of a row puts its splits together.
__global__ void __launch_bounds__(kMaxGpuHeadDim) CombineKernel(const DecodeAttentionArgs args) {
  const DecodeItem item = args.items[blockIdx.x];
  const AttentionRow& row = args.rows[item.row];
  const int64_t num_splits = NumSplits(row.num_past + 1);
  const int64_t dim = args.layout.head_dim;
  if (item.split != 0 || num_splits == 1 || threadIdx.x >= dim) return;
  const int64_t step = PartialFloats(args.num_heads, dim);
  const float* partial = args.partials + blockIdx.x * step + blockIdx.y * (dim + 2);
  const float sink = SinkOf(args.sinks, blockIdx.y);
  float maximum = sink;
  for (int64_t split = 0; split < num_splits; ++split) {
    maximum = fmaxf(maximum, partial[split * step + dim]);
  }
  float sum = __expf(sink - maximum);
  float weighted = 0.0F;
  for (int64_t split = 0; split < num_splits; ++split) {
    const float weight = __expf(partial[split * step + dim] - maximum);
    sum = fmaf(weight, partial[split * step + dim + 1], sum);
    weighted = fmaf(weight, partial[split * step + threadIdx.x], weighted);
  }
  args.out[row.token_offset * args.out_stride + blockIdx.y * dim + threadIdx.x] = weighted / sum;
}

template <typename Format, int kLanes>
void LaunchHeads(const DecodeAttentionArgs& args, Stream& stream) {
  constexpr int kHeadsAtOnce = 4;  // more would not leave registers for the loads in flight
  const int64_t kv_heads = args.layout.num_kv_heads;
  const int64_t group_size = args.num_heads / kv_heads;
  const auto items = static_cast<unsigned>(args.num_items);
  if (group_size == 1) {
    const dim3 grid(items, static_cast<unsigned>(kv_heads));
    LaunchKernel(DecodeKernel<Format, kLanes, 1>, grid, kThreads, args, stream,
                 "decode_attention launch");
  } else {
    const int64_t tiles = (group_size + kHeadsAtOnce - 1) / kHeadsAtOnce;
    const dim3 grid(items, static_cast<unsigned>(kv_heads * tiles));
    LaunchKernel(DecodeKernel<Format, kLanes, kHeadsAtOnce>, grid, kThreads, args, stream,
                 "decode_attention launch");
  }
}

}  // namespace

void DecodeAttentionAsync(const DecodeAttentionArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.layout.head_dim % kVectorElements == 0 &&
                 args.layout.head_dim <= kMaxGpuHeadDim);
  if (args.num_items == 0) return;
  WithFormat(args.kv_dtype, args.layout.bits, [&](auto format) {
    WithLanes(args.layout.head_dim, [&](auto lanes) {
      LaunchHeads<decltype(format), decltype(lanes)::value>(args, stream);
    });
  });
  const dim3 grid(static_cast<unsigned>(args.num_items), static_cast<unsigned>(args.num_heads));
  LaunchKernel(CombineKernel, grid, kMaxGpuHeadDim, args, stream,
               "decode_attention combine launch");
}

}  // namespace spillway::kernels
