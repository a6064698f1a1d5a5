// ComputePart: what time and trace lines of a compute are filed under. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace spillway {

// The layers of a model by what they do, and choosing a token from logits. A layer that holds
// attention and MLP at once (parallel residuals) counts as attention.
enum class ComputePart { kEmbedding, kAttention, kMlp, kHead, kSampling };

inline constexpr std::array<ComputePart, 5> kAllComputeParts = {
    ComputePart::kEmbedding, ComputePart::kAttention, ComputePart::kMlp, ComputePart::kHead,
    ComputePart::kSampling};

constexpr std::string_view ComputePartName(ComputePart part) {
  constexpr std::array<std::string_view, 5> kNames = {"embedding", "attention", "mlp", "head",
                                                      "sampling"};
  return kNames[static_cast<std::size_t>(part)];
}

// One double for each part.
struct PartSeconds {
  std::array<double, 5> values{};

  constexpr double& operator[](ComputePart part) { return values[static_cast<std::size_t>(part)]; }
  constexpr double operator[](ComputePart part) const {
    return values[static_cast<std::size_t>(part)];
  }
};

}  // namespace spillway
