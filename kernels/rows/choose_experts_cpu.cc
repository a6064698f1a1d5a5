#include <cmath>

#include "kernels/rows/choose_experts.h"
#include "kernels/rows/row_tasks.h"

namespace spillway::kernels {
namespace {

// True where an expert is among the first `count` of a choice.
bool IsChosen(const float* numbers, int64_t count, int64_t expert) {
  for (int64_t slot = 0; slot < count; ++slot) {
    if (numbers[slot] == static_cast<float>(expert)) return true;
  }
  return false;
}

// The expert of the highest score that is not chosen yet, the first of equals.
int64_t Highest(const ChooseExpertsArgs& args, const float* scores, const float* numbers,
                int64_t count) {
  int64_t best = -1;
  for (int64_t expert = 0; expert < args.num_experts; ++expert) {
    if (best >= 0 && !(scores[expert] > scores[best])) continue;
    if (!IsChosen(numbers, count, expert)) best = expert;
  }
  return best;
}

float SumOfAll(const ChooseExpertsArgs& args, const float* scores, float highest) {
  float sum = 0.0F;
  for (int64_t expert = 0; expert < args.num_experts; ++expert)
    sum += std::exp(scores[expert] - highest);
  return sum;
}

void ChooseRow(const ChooseExpertsArgs& args, const float* scores, float* numbers) {
  float* weights = numbers + args.slots();
  float sum = 0.0F;
  for (int64_t slot = 0; slot < args.top_k; ++slot) {
    const int64_t expert = Highest(args, scores, numbers, slot);
    numbers[slot] = static_cast<float>(expert);
    weights[slot] = std::exp(scores[expert] - scores[static_cast<int64_t>(numbers[0])]);
    sum += weights[slot];
  }
  if (args.weights == ChoiceWeights::kOfAll)
    sum = SumOfAll(args, scores, scores[static_cast<int64_t>(numbers[0])]);
  for (int64_t slot = 0; slot < args.top_k; ++slot) weights[slot] /= sum;
  if (!args.shared) return;
  numbers[args.top_k] = static_cast<float>(args.num_experts);
  weights[args.top_k] = 1.0F / (1.0F + std::exp(-scores[args.num_experts]));
}

}  // namespace

void ChooseExperts(const ChooseExpertsArgs& args, ThreadPool& pool) {
  constexpr int64_t kTaskElements = 8192;  // looked at
  ForRowTasks(pool, args.rows, args.num_experts * args.top_k, kTaskElements,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  ChooseRow(args, args.scores + row * args.scores_stride,
                            args.choice + row * args.choice_stride);
                }
              });
}

}  // namespace spillway::kernels
