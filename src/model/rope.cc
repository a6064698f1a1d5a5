#include <cmath>
#include <numbers>

#include "spillway/layer.h"

namespace spillway {
namespace {

float Llama3Frequency(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_frequency);
  const auto high = static_cast<float>(scaling.high_frequency);
  const auto original = static_cast<float>(scaling.original_positions);
  const float wave = 2.0F * std::numbers::pi_v<float> / frequency;
  if (wave < original / high) return frequency;
  if (wave > original / low) return frequency / factor;
  const float kept = (original / wave - low) / (high - low);
  return (1.0F - kept) * (frequency / factor) + kept * frequency;
}

float Scaled(float frequency, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScalingKind::kNone:
      break;
    case RopeScalingKind::kLinear:
      return frequency / static_cast<float>(scaling.factor);
    case RopeScalingKind::kLlama3:
      return Llama3Frequency(frequency, scaling);
  }
  return frequency;
}

}  // namespace

std::vector<float> InverseFrequencies(const Rope& rope) {
  std::vector<float> frequencies;
  const auto theta = static_cast<float>(rope.theta);
  for (int64_t dim = 0; dim < rope.dims; dim += 2) {
    const float power = static_cast<float>(dim) / static_cast<float>(rope.dims);
    frequencies.push_back(Scaled(1.0F / std::pow(theta, power), rope.scaling));
  }
  return frequencies;
}

}  // namespace spillway
