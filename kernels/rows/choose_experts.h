// ChooseExperts: which experts a row goes to, and with what weights, in fp32. A row's bits depend
// on that row only, and are the same for every number of threads. Thread rule: one call at a time
// per pool; the reference runs in any thread.
#pragma once

#include <cstdint>

#include "spillway/layer.h"  // ChoiceWeights
#include "src/base/thread_pool.h"

namespace spillway {
class Stream;
}

namespace spillway::kernels {

struct ChooseExpertsArgs {
  const float* scores = nullptr;  // [rows, num_experts], and the shared expert's behind them
  int64_t scores_stride = 0;
  float* choice = nullptr;  // [rows, 2 * slots]: numbers of experts, then weights
  int64_t choice_stride = 0;
  int64_t rows = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;  // at most num_experts
  ChoiceWeights weights = ChoiceWeights::kOfChosen;
  bool shared = false;  // a slot more, for expert number num_experts

  constexpr int64_t slots() const { return top_k + (shared ? 1 : 0); }
};

// Chooses as Choose says (spillway/layer.h). Scores that are not finite give weights that are not.
void ChooseExperts(const ChooseExpertsArgs& args, ThreadPool& pool);
void ChooseExpertsRef(const ChooseExpertsArgs& args);

inline constexpr int64_t kMaxGpuExperts = 512;

// GPU form: pointers are to GPU memory. Requires: num_experts <= kMaxGpuExperts. Stream: one
// kernel.
void ChooseExpertsAsync(const ChooseExpertsArgs& args, Stream& stream);

}  // namespace spillway::kernels
