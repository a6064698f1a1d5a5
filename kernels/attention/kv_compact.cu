#include "kernels/attention/kv_compact.h"
#include "kernels/kv/kv_eviction.h"
#include "kernels/kv/kv_layout.h"
#include "kernels/kv/kv_vectors.cuh"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// One KV head of one row, computed by one block.
template <typename Form>
struct Compaction {
  const GpuKvCompactArgs& args;
  const KvCompactRow& row;
  int64_t kv_head;  // of the model's

  __device__ int64_t Workspace() const { return kv_head * args.num_columns + row.column; }
  __device__ float* Scores() const { return args.scores + Workspace(); }
  __device__ int32_t* Kept() const { return args.kept + Workspace(); }
  __device__ bool KeepsAll(const KvKeep& kept) const { return row.num_tokens <= kept.slots(); }

  // Sums each token's scores over the heads that share the KV head, in their order.
  __device__ void SumScores() const {
    const KvCompactArgs& compact = args.compact;
    const int64_t group = compact.num_heads / compact.num_kv_heads;
    for (int64_t token = threadIdx.x; token < row.num_tokens; token += kThreads) {
      float sum = 0.0F;
      for (int64_t head = kv_head * group;
           row.token_scores != nullptr && head < (kv_head + 1) * group; ++head) {
        sum += row.token_scores[head * compact.token_scores_stride + token];
      }
      Scores()[token] = sum;
    }
    __syncthreads();
  }

  // Tokens before it, but for the sinks, do not stay.
  __device__ int64_t FirstCandidate(const KvKeep& kept) const {
    const int64_t first_seen = FirstSeen(kept, row.num_tokens);
    return kept.sinks > first_seen ? kept.sinks : first_seen;
  }

  // True for the `heavy` candidates of the highest scores, the earlier ones among equals. Counting
  // reads each score num_tokens times, from the cache; it needs no sort and no memory.
  __device__ bool IsHeavy(int64_t token, const KvKeep& kept) const {
    const float* scores = Scores();
    const float own = OrderedScore(scores[token]);
    int64_t before = 0;
    for (int64_t other = FirstCandidate(kept); other < row.num_tokens - kept.recent; ++other) {
      const float score = OrderedScore(scores[other]);
      before += score > own || (score == own && other < token) ? 1 : 0;
    }
    return before < kept.heavy;
  }

  __device__ bool Stays(int64_t token, const KvKeep& kept) const {
    if (token >= row.num_tokens) return false;
    if (KeepsAll(kept) || token < kept.sinks || token >= row.num_tokens - kept.recent) return true;
    return token >= FirstCandidate(kept) && IsHeavy(token, kept);
  }

  // Lists the tokens that stay, in order of position. Returns how many.
  __device__ int64_t List(const KvKeep& kept, int* warp_counts) const {
    int64_t num_kept = 0;
    for (int64_t first = 0; first < row.num_tokens; first += kThreads) {
      const int64_t token = first + threadIdx.x;
      const bool stays = Stays(token, kept);
      const unsigned staying = __ballot_sync(kAllLanes, stays);
      const int warp = threadIdx.x / kWarp;
      if (threadIdx.x % kWarp == 0) warp_counts[warp] = __popc(staying);
      __syncthreads();
      int64_t place = num_kept + __popc(staying & ((1U << (threadIdx.x % kWarp)) - 1));
      for (int before = 0; before < kWarps; ++before) {
        if (before < warp) place += warp_counts[before];
        num_kept += warp_counts[before];
      }
      if (stays) Kept()[place] = static_cast<int32_t>(token);
      __syncthreads();
    }
    return num_kept;
  }

  __device__ void Copy(int64_t num_kept) const {
    const KvCompactArgs& compact = args.compact;
    const KvLayout to = KvLayoutWithState(compact.RunHeads(), compact.head_dim, Form::kBits,
                                          compact.kv_block_fill);
    const int64_t to_head = kv_head - row.kv_head;
    const KvLayout from = FullKvLayout(compact.num_kv_heads, compact.head_dim, Form::kBits);
    const TokenCopy<Form> copy = {{from, kv_head}, {to, to_head}};
    const RowSlots slots = {row.prefix, row.from, row.prefix_tokens};
    for (int64_t at = threadIdx.x; at < num_kept * copy.words(); at += kThreads) {
      const int64_t slot = at / copy.words();
      const int64_t token = Kept()[slot];
      copy.Word(slots.Base<Form>(from, token), token, row.kv, slot, at % copy.words());
    }
    for (int64_t slot = threadIdx.x; slot < num_kept; slot += kThreads) {
      const int32_t token = Kept()[slot];
      *reinterpret_cast<float*>(row.kv + ScoreOffset<Form>(to, to_head, slot)) = Scores()[token];
      *reinterpret_cast<int32_t*>(row.kv + PositionOffset<Form>(to, to_head, slot)) = token;
    }
  }
};

// grid: (row, KV head of its cache).
template <typename Form>
__global__ void __launch_bounds__(kThreads) KvCompactKernel(const GpuKvCompactArgs args) {
  __shared__ int warp_counts[kWarps];
  const KvCompactRow& row = args.compact.rows.data()[blockIdx.x];
  const Compaction<Form> work = {args, row, row.kv_head + blockIdx.y};
  work.SumScores();
  work.Copy(work.List(KeptTokens(args.compact.kind, row.keep), warp_counts));
}

}  // namespace

void KvCompactAsync(const GpuKvCompactArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.compact.head_dim % kVectorElements == 0);
  if (args.compact.rows.empty()) return;
  const dim3 grid(static_cast<unsigned>(args.compact.rows.size()),
                  static_cast<unsigned>(args.compact.RunHeads()));
  // Elements are only copied: at 16 bits either type will do.
  WithFormat(DType::kF16, args.compact.kv_bits, [&](auto format) {
    LaunchKernel(KvCompactKernel<typename decltype(format)::Form>, grid, kThreads, args, stream,
                 "kv_compact launch");
  });
}

}  // namespace spillway::kernels
