#include "kernels/rows/choose_experts.h"
#include "kernels/simd/launch.cuh"
#include "spillway/error.h"

namespace spillway::kernels {
namespace {

constexpr int kRowsOfBlock = 4;
constexpr int kThreads = kRowsOfBlock * kWarp;
constexpr int kMostOfLane = kMaxGpuExperts / kWarp;
constexpr int kNone = INT32_MAX;  // behind every expert

struct Candidate {
  float score = -INFINITY;
  int expert = kNone;
};

// The higher score, the first of equals.
__device__ Candidate BetterOf(Candidate a, Candidate b) {
  const bool first = a.score > b.score || (a.score == b.score && a.expert < b.expert);
  return first ? a : b;
}

// The best over a warp, in every lane.
__device__ Candidate BestOverLanes(Candidate best) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    Candidate other;
    other.score = __shfl_xor_sync(kAllLanes, best.score, offset);
    other.expert = __shfl_xor_sync(kAllLanes, best.expert, offset);
    best = BetterOf(best, other);
  }
  return best;
}

// Scores of a row; lane l has those of experts l, l + 32, ... A score that is not a number counts
// as the lowest, so that a choice always names experts.
struct LaneScores {
  float score[kMostOfLane];
  uint32_t left;  // bits of those that are not chosen

  __device__ LaneScores(const float* scores, int64_t num_experts) : left(0) {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
#pragma unroll
    for (int at = 0; at < kMostOfLane; ++at) {
      const int expert = lane + at * kWarp;
      if (expert >= num_experts) continue;
      score[at] = fmaxf(scores[expert], -INFINITY);
      left |= 1U << at;
    }
  }

  __device__ Candidate TakeBest() {
    const int lane = static_cast<int>(threadIdx.x % kWarp);
    Candidate best;
#pragma unroll
    for (int at = 0; at < kMostOfLane; ++at) {
      if ((left >> at & 1U) != 0) best = BetterOf(best, {score[at], lane + at * kWarp});
    }
    best = BestOverLanes(best);
    if (best.expert % kWarp == lane) left &= ~(1U << (best.expert / kWarp));
    return best;
  }
};

__device__ float SumOfAll(const float* scores, int64_t num_experts, float highest) {
  float sum = 0.0F;
  for (int64_t expert = threadIdx.x % kWarp; expert < num_experts; expert += kWarp)
    sum += expf(scores[expert] - highest);
  return SumOverLanes<kWarp>(sum);
}

// A warp chooses for one row.
__global__ void __launch_bounds__(kThreads) ChooseExpertsKernel(const ChooseExpertsArgs args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
  if (row >= args.rows) return;  // the whole warp
  const bool writes = threadIdx.x % kWarp == 0;
  const float* scores = args.scores + row * args.scores_stride;
  float* numbers = args.choice + row * args.choice_stride;
  float* weights = numbers + args.slots();
  LaneScores lanes(scores, args.num_experts);
  float highest = 0.0F;
  float sum = 0.0F;
  for (int64_t slot = 0; slot < args.top_k; ++slot) {
    const int expert = lanes.TakeBest().expert;
    if (slot == 0) highest = scores[expert];
    const float weight = expf(scores[expert] - highest);
    sum += weight;
    if (!writes) continue;
    numbers[slot] = static_cast<float>(expert);
    weights[slot] = weight;
  }
  if (args.weights == ChoiceWeights::kOfAll) sum = SumOfAll(scores, args.num_experts, highest);
  if (!writes) return;
  for (int64_t slot = 0; slot < args.top_k; ++slot) weights[slot] = __fdiv_rn(weights[slot], sum);
  if (!args.shared) return;
  numbers[args.top_k] = static_cast<float>(args.num_experts);
  weights[args.top_k] = __fdiv_rn(1.0F, 1.0F + expf(-scores[args.num_experts]));
}

}  // namespace

void ChooseExpertsAsync(const ChooseExpertsArgs& args, Stream& stream) {
  SPILLWAY_CHECK(args.num_experts <= kMaxGpuExperts && args.top_k <= args.num_experts);
  if (args.rows == 0) return;
  LaunchKernel(ChooseExpertsKernel, Blocks(args.rows, kRowsOfBlock), kThreads, args, stream,
               "choose_experts launch");
}

}  // namespace spillway::kernels
