#include "src/sampling/log_probability.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace spillway {
namespace {

// Lanes the compiler keeps in vector registers: std::exp on 50k doubles takes longer than the
// product that made the logits of a small model.
constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 1024;

// exp(x) for x <= 0; 0 below -87, where floats end. ln 2 in two parts, the first with enough zero
// bits for n times it to be exact, then the Taylor polynomial on [-ln 2 / 2, ln 2 / 2] (the first
// term left out is 5e-9).
inline float ExpOfNegative(float x) {
  constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23: what is added to it becomes an integer
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * 1.44269504F + kRounder;
  const float n = shifted - kRounder;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.0F / 5040.0F;
  p = p * r + 1.0F / 720.0F;
  p = p * r + 1.0F / 120.0F;
  p = p * r + 1.0F / 24.0F;
  p = p * r + 1.0F / 6.0F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) + 127U) << 23;
  return x < -87.0F ? 0.0F : p * std::bit_cast<float>(power);
}

float SumOfBlock(std::span<const float> block, float largest) {
  std::array<float, kLanes> sums{};
  std::size_t at = 0;
  for (; at + kLanes <= block.size(); at += kLanes) {
    const float* values = block.data() + at;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += ExpOfNegative(values[lane] - largest);
    }
  }
  for (; at < block.size(); ++at) sums[0] += ExpOfNegative(block[at] - largest);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

}  // namespace

float LogProbability(std::span<const float> logits, TokenId token, float largest) {
  double sum = 0.0;
  for (std::size_t at = 0; at < logits.size(); at += kBlock) {
    sum += SumOfBlock(logits.subspan(at, std::min(kBlock, logits.size() - at)), largest);
  }
  const double logit = logits[static_cast<std::size_t>(token)];
  return static_cast<float>(logit - double{largest} - std::log(sum));
}

}  // namespace spillway
