#include "src/requests/token_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Lanes the compiler keeps in vector registers; without them a float maximum is one long chain of dependent steps.
constexpr std::size_t kLanes = 16;
// A block stays in the first-level cache, so that searching it a second time for its maximum costs nothing.
constexpr std::size_t kBlock = 1024;

struct BlockMaximum {
  float value;
  bool has_nan;
};

BlockMaximum MaximumOf(std::span<const float> block) {
  std::array<float, kLanes> largest;
  std::array<uint32_t, kLanes> unordered{};
  largest.fill(-kInfinity);
  std::size_t at = 0;
  for (; at + kLanes <= block.size(); at += kLanes) {
    const float* values = block.data() + at;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = values[lane] > largest[lane] ? values[lane] : largest[lane];
      unordered[lane] |= values[lane] != values[lane] ? 1U : 0U;
    }
  }
  for (; at < block.size(); ++at) {
    largest[0] = block[at] > largest[0] ? block[at] : largest[0];
    unordered[0] |= block[at] != block[at] ? 1U : 0U;
  }
  return {std::ranges::max(largest), std::ranges::any_of(unordered, [](uint32_t seen) { return seen != 0; })};
}

bool Before(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

struct Scratch {
  std::vector<TokenLogit> candidates;
  std::vector<double> weights;
};

// One per thread, not per row: with thousands of rows 400 kB each would be gigabytes.
Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

// The first place where the running sum of `weights` passes uniform * total; never one of weight 0.
std::size_t Pick(std::span<const double> weights, double total, double uniform) {
  const double target = uniform * total;
  double sum = 0.0;
  std::size_t last = 0;
  for (std::size_t place = 0; place < weights.size(); ++place) {
    if (weights[place] == 0.0) continue;
    sum += weights[place];
    last = place;
    if (sum > target) break;
  }
  return last;  // rounding may leave the sum at the target: then the last that has any weight
}

// Keeps the shortest head of `weights` (descending) with a mass of at least top_p * total, and makes `total` its mass.
// False when all of them have less: `weights` is not long enough.
bool CutToNucleus(std::vector<double>& weights, double top_p, double& total) {
  const double wanted = top_p * total;
  double sum = 0.0;
  for (std::size_t place = 0; place < weights.size(); ++place) {
    sum += weights[place];
    if (sum >= wanted) {
      weights.resize(place + 1);
      total = sum;
      return true;
    }
  }
  return false;
}

class Distribution {
 public:
  Distribution(std::span<const float> logits, float largest, double temperature)
      : logits_(logits), largest_(largest), temperature_(temperature) {}

  // The difference first: a tiny temperature then gives 0 or 1, never an infinity.
  double Weight(float logit) const { return std::exp((double{logit} - largest_) / temperature_); }

  // Weights of the whole vocabulary by id; returns their sum.
  double WeighAll(std::vector<double>& weights) const {
    weights.resize(logits_.size());
    double total = 0.0;
    for (std::size_t token = 0; token < logits_.size(); ++token) total += weights[token] = Weight(logits_[token]);
    return total;
  }

  // Weights of the `count` best, which end up in scratch.candidates; returns their sum.
  double WeighBest(std::size_t count, Scratch& scratch) const {
    BestTokens(logits_, count, scratch.candidates);
    scratch.weights.clear();
    double total = 0.0;
    for (const TokenLogit& candidate : scratch.candidates) {
      scratch.weights.push_back(Weight(candidate.logit));
      total += scratch.weights.back();
    }
    return total;
  }

 private:
  std::span<const float> logits_;
  double largest_;
  double temperature_;
};

TokenId DrawFromTopK(const Distribution& distribution, std::size_t top_k, double top_p, double uniform) {
  Scratch& scratch = ThreadScratch();
  double total = distribution.WeighBest(top_k, scratch);
  if (top_p < 1.0) CutToNucleus(scratch.weights, top_p, total);
  return scratch.candidates[Pick(scratch.weights, total, uniform)].token;
}

// The nucleus is mostly a few dozen tokens: the best 64 are tried first, then 16 times more each time, so that the
// vocabulary is hardly ever sorted as a whole.
TokenId DrawFromNucleus(const Distribution& distribution, std::size_t vocab, double top_p, double uniform) {
  Scratch& scratch = ThreadScratch();
  const double mass = distribution.WeighAll(scratch.weights);
  for (std::size_t count = 64;; count *= 16) {
    double total = mass;
    distribution.WeighBest(count, scratch);
    if (CutToNucleus(scratch.weights, top_p, total)) {
      return scratch.candidates[Pick(scratch.weights, total, uniform)].token;
    }
    // Only by rounding (the two sums run in different orders) can the whole vocabulary fall short.
    if (count >= vocab) return scratch.candidates[Pick(scratch.weights, total, uniform)].token;
  }
}

}  // namespace

std::optional<TokenId> ArgMax(std::span<const float> logits) {
  float largest = -kInfinity;
  std::size_t largest_block = 0;
  bool has_nan = false;
  for (std::size_t at = 0; at < logits.size(); at += kBlock) {
    const BlockMaximum maximum = MaximumOf(logits.subspan(at, std::min(kBlock, logits.size() - at)));
    has_nan |= maximum.has_nan;
    if (maximum.value > largest) {
      largest = maximum.value;
      largest_block = at;
    }
  }
  if (has_nan || !std::isfinite(largest)) return std::nullopt;
  const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(largest_block);
  return static_cast<TokenId>(std::find(begin, logits.end(), largest) - logits.begin());
}

void BestTokens(std::span<const float> logits, std::size_t count, std::vector<TokenLogit>& best) {
  best.clear();
  count = std::min(count, logits.size());
  if (count == 0) return;
  // A heap with its worst on top. Ids ascend, so that an equal logit that comes later is never better.
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (best.size() == count) {
      if (!(logits[token] > best.front().logit)) continue;
      std::ranges::pop_heap(best, Before);
      best.pop_back();
    }
    best.push_back({static_cast<TokenId>(token), logits[token]});
    std::ranges::push_heap(best, Before);
  }
  std::ranges::sort_heap(best, Before);
}

double LogSumExp(std::span<const float> logits, float largest) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{largest});
  return double{largest} + std::log(sum);
}

TokenId DrawToken(std::span<const float> logits, TokenId best, const Sampling& sampling, double uniform) {
  const Distribution distribution(logits, logits[static_cast<std::size_t>(best)], sampling.temperature);
  const bool cut_to_k = sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(logits.size());
  if (cut_to_k) {
    return DrawFromTopK(distribution, static_cast<std::size_t>(sampling.top_k), sampling.top_p, uniform);
  }
  if (sampling.top_p < 1.0) return DrawFromNucleus(distribution, logits.size(), sampling.top_p, uniform);
  std::vector<double>& weights = ThreadScratch().weights;
  const double total = distribution.WeighAll(weights);
  return static_cast<TokenId>(Pick(weights, total, uniform));
}

}  // namespace spillway
