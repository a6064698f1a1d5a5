#include "src/sampling/token_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace spillway {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Lanes the compiler keeps in vector registers; without them a float maximum is one long chain of
// dependent steps.
constexpr std::size_t kLanes = 16;
// A block stays in the first-level cache, so that searching it a second time for its maximum costs
// nothing.
constexpr std::size_t kBlock = 1024;

// Up to this many best tokens a heap beats partitioning a copy of the vocabulary (320 us to 1.2 ms
// at 50k tokens).
constexpr std::size_t kMaxHeap = 256;
// Sorted outright; the first guess of a nucleus.
constexpr std::size_t kShort = 64;

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
  return {std::ranges::max(largest),
          std::ranges::any_of(unordered, [](uint32_t seen) { return seen != 0; })};
}

bool Before(const TokenLogit& a, const TokenLogit& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// exp((logit - largest) / temperature). The difference first: a tiny temperature then gives 0 or 1,
// never an infinity.
class Weigher {
 public:
  Weigher(float largest, double temperature) : largest_(largest), temperature_(temperature) {}
  double operator()(float logit) const {
    return std::exp((double{logit} - largest_) / temperature_);
  }

 private:
  double largest_;
  double temperature_;
};

void CopyAll(std::span<const float> logits, std::vector<TokenLogit>& all) {
  all.resize(logits.size());
  for (std::size_t token = 0; token < logits.size(); ++token)
    all[token] = {static_cast<TokenId>(token), logits[token]};
}

// The place in `descending` of the last that is needed for a mass of `wanted`; its size when all
// are not enough.
std::size_t NucleusEnd(std::span<const TokenLogit> descending, double wanted,
                       const Weigher& weigh) {
  std::size_t place = 0;
  for (double sum = 0.0; place < descending.size(); ++place) {
    sum += weigh(descending[place].logit);
    if (sum >= wanted) break;
  }
  return place;
}

// Searches the whole vocabulary, unsorted: the half with the last needed token is halved until
// it is short.
TokenLogit LastOfWideNucleus(std::span<const float> logits, double wanted, const Weigher& weigh,
                             std::vector<TokenLogit>& all) {
  CopyAll(logits, all);
  std::span<TokenLogit> rest = all;
  while (rest.size() > kShort) {
    const std::size_t half = rest.size() / 2;
    std::ranges::nth_element(rest, rest.begin() + static_cast<std::ptrdiff_t>(half), Before);
    double mass = 0.0;
    for (const TokenLogit& entry : rest.first(half)) mass += weigh(entry.logit);
    if (mass >= wanted) {
      rest = rest.first(half);
    } else {
      wanted -= mass;
      rest = rest.subspan(half);
    }
  }
  std::ranges::sort(rest, Before);
  return rest[std::min(NucleusEnd(rest, wanted, weigh), rest.size() - 1)];
}

// The last token that top_k and top_p keep.
TokenLogit LastKept(std::span<const float> logits, const Sampling& sampling, const Weigher& weigh,
                    std::vector<TokenLogit>& best) {
  const bool cut_to_k = sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(logits.size());
  if (!cut_to_k && sampling.top_p >= 1.0) return {static_cast<TokenId>(logits.size()), -kInfinity};
  // The nucleus is mostly a few dozen tokens: those are tried before the vocabulary is partitioned.
  BestTokens(logits, cut_to_k ? static_cast<std::size_t>(sampling.top_k) : kShort, best);
  if (sampling.top_p >= 1.0) return best.back();
  double mass = 0.0;
  if (cut_to_k) {
    for (const TokenLogit& entry : best) mass += weigh(entry.logit);
  } else {
    for (const float logit : logits) mass += weigh(logit);
  }
  const double wanted = sampling.top_p * mass;
  const std::size_t end = NucleusEnd(best, wanted, weigh);
  if (end < best.size()) return best[end];
  // Past the end of the k best only by rounding.
  return cut_to_k ? best.back() : LastOfWideNucleus(logits, wanted, weigh, best);
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

}  // namespace

std::optional<TokenId> ArgMax(std::span<const float> logits) {
  float largest = -kInfinity;
  std::size_t largest_block = 0;
  bool has_nan = false;
  for (std::size_t at = 0; at < logits.size(); at += kBlock) {
    const BlockMaximum maximum =
        MaximumOf(logits.subspan(at, std::min(kBlock, logits.size() - at)));
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
  if (count > kMaxHeap) {
    CopyAll(logits, best);
    std::ranges::nth_element(best, best.begin() + static_cast<std::ptrdiff_t>(count - 1), Before);
    best.resize(count);
    std::ranges::sort(best, Before);
    return;
  }
  // A heap with its worst on top. Ids ascend, so that an equal logit that comes later is never
  // better.
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

std::vector<TokenLogprob> Likeliest(std::span<const float> logits, int64_t count, double normaliser,
                                    ChoiceScratch& scratch) {
  std::vector<TokenLogit>& largest = scratch.candidates;
  BestTokens(logits, static_cast<std::size_t>(count), largest);
  std::vector<TokenLogprob> top;
  top.reserve(largest.size());
  for (const TokenLogit& entry : largest)
    top.push_back({entry.token, static_cast<float>(entry.logit - normaliser)});
  return top;
}

double LogSumExp(std::span<const float> logits, float largest) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{largest});
  return double{largest} + std::log(sum);
}

TokenId DrawToken(std::span<const float> logits, TokenId best, const Sampling& sampling,
                  double uniform, ChoiceScratch& scratch) {
  const Weigher weigh(logits[static_cast<std::size_t>(best)], sampling.temperature);
  const TokenLogit last = LastKept(logits, sampling, weigh, scratch.candidates);
  scratch.kept.clear();
  scratch.weights.clear();
  double total = 0.0;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] < last.logit) continue;
    const auto id = static_cast<TokenId>(token);
    if (Before(last, {id, logits[token]})) continue;
    scratch.kept.push_back(id);
    scratch.weights.push_back(weigh(logits[token]));
    total += scratch.weights.back();
  }
  return scratch.kept[Pick(scratch.weights, total, uniform)];
}

}  // namespace spillway
