#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

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

// The pair, in fractions, that turns `turns` times within the original positions.
double PairOfTurns(const Rope& rope, double turns) {
  const auto original = static_cast<double>(rope.scaling.original_positions);
  return static_cast<double>(rope.dims) * std::log(original / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rope.theta));
}

// The share of a pair's frequency that YaRN divides.
class YarnRamp {
 public:
  explicit YarnRamp(const Rope& rope) {
    double first = PairOfTurns(rope, rope.scaling.fast_turns);
    double last = PairOfTurns(rope, rope.scaling.slow_turns);
    if (rope.scaling.whole_pairs) {
      first = std::floor(first);
      last = std::ceil(last);
    }
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(rope.dims - 1));
    if (first == last) last += 0.001;
    begin_ = static_cast<float>(first);
    length_ = static_cast<float>(last - first);
  }

  float At(int64_t pair) const {
    return std::clamp((static_cast<float>(pair) - begin_) / length_, 0.0F, 1.0F);
  }

 private:
  float begin_;
  float length_;
};

double ThetaOf(const Rope& rope, int64_t length) {
  const RopeScaling& scaling = rope.scaling;
  if (scaling.kind != RopeScalingKind::kDynamic || length <= scaling.original_positions)
    return rope.theta;
  const auto original = static_cast<double>(scaling.original_positions);
  const auto dims = static_cast<double>(rope.dims);
  const double stretch =
      scaling.factor * static_cast<double>(length) / original - (scaling.factor - 1.0);
  return rope.theta * std::pow(stretch, dims / (dims - 2.0));
}

// Frequencies from the powers of theta that they are inverse to.
class Scaling {
 public:
  Scaling(const Rope& rope, int64_t length)
      : scaling_(rope.scaling),
        factor_(static_cast<float>(rope.scaling.factor)),
        is_long_(length > rope.scaling.original_positions) {
    if (scaling_.kind == RopeScalingKind::kYarn) ramp_.emplace(rope);
  }

  float Frequency(int64_t pair, float power) const {
    switch (scaling_.kind) {
      case RopeScalingKind::kNone:
      case RopeScalingKind::kDynamic:
        break;
      case RopeScalingKind::kLinear:
        return 1.0F / power / factor_;
      case RopeScalingKind::kLlama3:
        return Llama3Frequency(1.0F / power, scaling_);
      case RopeScalingKind::kYarn: {
        const float kept = 1.0F - ramp_->At(pair);
        return 1.0F / (factor_ * power) * (1.0F - kept) + 1.0F / power * kept;
      }
      case RopeScalingKind::kStill:
        return 0.0F;
      case RopeScalingKind::kLong: {
        const auto& factors = is_long_ ? scaling_.long_factors : scaling_.short_factors;
        return 1.0F / (static_cast<float>(factors[static_cast<std::size_t>(pair)]) * power);
      }
    }
    return 1.0F / power;
  }

 private:
  const RopeScaling& scaling_;
  float factor_;
  bool is_long_;
  std::optional<YarnRamp> ramp_;
};

}  // namespace

void FillInverseFrequencies(const Rope& rope, int64_t length, std::span<float> frequencies) {
  const Scaling scaling(rope, length);
  const auto theta = static_cast<float>(ThetaOf(rope, length));
  for (int64_t pair = 0; pair < rope.dims / 2; ++pair) {
    const float part = static_cast<float>(2 * pair) / static_cast<float>(rope.dims);
    frequencies[static_cast<std::size_t>(pair)] = scaling.Frequency(pair, std::pow(theta, part));
  }
}

std::vector<float> InverseFrequencies(const Rope& rope, int64_t length) {
  std::vector<float> frequencies(static_cast<std::size_t>(rope.dims / 2));
  FillInverseFrequencies(rope, length, frequencies);
  return frequencies;
}

}  // namespace spillway
