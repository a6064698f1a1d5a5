#include "src/sampling/token_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "src/sampling/random.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(std::size_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

std::vector<TokenId> Ids(const std::vector<TokenLogit>& best) {
  std::vector<TokenId> ids;
  for (const TokenLogit& entry : best) ids.push_back(entry.token);
  return ids;
}

Sampling Hot(double temperature, int64_t top_k, double top_p) {
  Sampling sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  return sampling;
}

ChoiceScratch scratch;  // what one draw leaves there must not reach the next

TokenId Draw(const std::vector<float>& logits, const Sampling& sampling, double uniform) {
  return DrawToken(logits, *ArgMax(logits), sampling, uniform, scratch);
}

// Counts how often each token comes in `count` draws.
std::map<TokenId, int> Histogram(const std::vector<float>& logits, const Sampling& sampling,
                                 int count) {
  std::map<TokenId, int> histogram;
  for (int draw = 0; draw < count; ++draw) {
    ++histogram[Draw(logits, sampling, UniformDraw(1, 2, static_cast<uint64_t>(draw)))];
  }
  return histogram;
}

// Computed apart from this code, by a plain transcription of XXH64's specification.
TEST(UniformDraw, IsTheSameForEver) {
  EXPECT_EQ(UniformDraw(0, 0, 0), 0x1.5e13ee2a2c48fp-1);
  EXPECT_EQ(UniformDraw(1, 2, 3), 0x1.76c401e4b73f8p-2);
  EXPECT_EQ(UniformDraw(UINT64_MAX, 1, 0), 0x1.333a5ccab3af3p-1);
  EXPECT_EQ(UniformDraw(42, 10'000'000, 511), 0x1.7f3f7f40cc27bp-1);
}

TEST(UniformDraw, IsUniformOverEachOfItsArguments) {
  for (int argument = 0; argument < 3; ++argument) {
    std::vector<int> bins(64);
    constexpr int kDraws = 64'000;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const double draw =
          UniformDraw(argument == 0 ? i : 7, argument == 1 ? i : 7, argument == 2 ? i : 7);
      ASSERT_GE(draw, 0.0) << "argument " << argument << " = " << i;
      ASSERT_LT(draw, 1.0) << "argument " << argument << " = " << i;
      ++bins[static_cast<std::size_t>(draw * 64)];
    }
    double chi_square = 0.0;
    for (const int bin : bins) chi_square += (bin - 1000.0) * (bin - 1000.0) / 1000.0;
    EXPECT_LT(chi_square, 110.0) << argument;  // 63 degrees of freedom: p = 0.0002
    EXPECT_GT(chi_square, 30.0) << argument;
  }
}

TEST(ArgMax, AgreesWithAPlainSearchAtEverySize) {
  for (const std::size_t size : {1, 2, 15, 16, 17, 1023, 1024, 1025, 2048, 5000, 50'272}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const std::vector<float> logits = RandomLogits(size, seed);
      EXPECT_EQ(ArgMax(logits), std::ranges::max_element(logits) - logits.begin()) << size;
    }
  }
}

TEST(ArgMax, TakesTheLowestIdAmongEquals) {
  std::vector<float> logits(3000, -1.0F);
  for (const std::size_t first : {2999, 2048, 2047, 1024, 1023, 17, 16, 15, 0}) {
    logits[first] = 5.0F;
    EXPECT_EQ(ArgMax(logits), static_cast<TokenId>(first));
  }
  EXPECT_EQ(ArgMax(std::vector<float>{-0.0F, 0.0F}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>{0.0F, -0.0F}), 0);
  EXPECT_EQ(ArgMax(std::vector<float>(100, 3.0F)), 0);
}

TEST(ArgMax, RefusesWhatIsNotFinite) {
  for (std::size_t place = 0; place < 1100; place += 7) {
    std::vector<float> logits = RandomLogits(1100, 3);
    logits[place] = kNan;
    EXPECT_EQ(ArgMax(logits), std::nullopt) << place;
    logits[place] = -kNan;
    EXPECT_EQ(ArgMax(logits), std::nullopt) << place;
    logits[place] = kInf;
    EXPECT_EQ(ArgMax(logits), std::nullopt) << place;
    logits[place] = -kInf;
    EXPECT_NE(ArgMax(logits), std::nullopt) << place;
  }
  EXPECT_EQ(ArgMax(std::vector<float>(2000, -kInf)), std::nullopt);
  EXPECT_EQ(ArgMax(std::vector<float>{}), std::nullopt);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInf, std::numeric_limits<float>::lowest()}), 1);
}

TEST(BestTokens, AgreesWithASort) {
  std::vector<TokenLogit> best;
  for (const std::size_t size : {1, 5, 100, 3000}) {
    std::vector<float> logits = RandomLogits(size, 9);
    for (float& logit : logits) logit = std::round(logit);  // many ties
    std::vector<TokenId> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](TokenId id) { return logits[static_cast<std::size_t>(id)]; });
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, size / 2, size, size + 3}) {
      BestTokens(logits, count, best);
      const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, size));
      EXPECT_EQ(Ids(best), std::vector<TokenId>(order.begin(), end)) << size << " " << count;
    }
  }
}

TEST(LogSumExp, IsStable) {
  EXPECT_DOUBLE_EQ(LogSumExp(std::vector<float>{1000.0F, 1000.0F}, 1000.0F),
                   1000.0 + std::log(2.0));
  EXPECT_DOUBLE_EQ(LogSumExp(std::vector<float>{-1000.0F, -kInf}, -1000.0F), -1000.0);
}

TEST(DrawToken, FollowsTheSoftmax) {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F, -kInf, 0.5F};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0.0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    constexpr int kDraws = 50'000;
    // All three ways of drawing must give the same distribution when they cut nothing off.
    for (const Sampling& sampling :
         {Hot(temperature, 0, 1.0), Hot(temperature, 4, 1.0), Hot(temperature, 0, 0.999999)}) {
      SCOPED_TRACE(
          CaseOf("temperature", temperature, "top_k", sampling.top_k, "top_p", sampling.top_p));
      const auto histogram = Histogram(logits, sampling, kDraws);
      EXPECT_FALSE(histogram.contains(3));
      double chi_square = 0.0;
      for (const TokenId token : {0, 1, 2, 4}) {
        const double expected =
            kDraws * std::exp(logits[static_cast<std::size_t>(token)] / temperature) / total;
        chi_square += std::pow(histogram.at(token) - expected, 2) / expected;
      }
      EXPECT_LT(chi_square, 16.3);  // 3 degrees of freedom: p = 0.001
    }
  }
}

TEST(DrawToken, TopKKeepsTheLargestAndTheLowerIdsAmongEquals) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F, 2.0F};
  for (int draw = 0; draw < 100; ++draw) EXPECT_EQ(Draw(logits, Hot(5.0, 1, 1.0), draw / 100.0), 1);
  const auto three = Histogram(logits, Hot(1.0, 3, 1.0), 2000);
  EXPECT_EQ(three.size(), 3u);
  EXPECT_TRUE(three.contains(1) && three.contains(3) && three.contains(2));
  EXPECT_EQ(Histogram(logits, Hot(1.0, 5, 1.0), 4000).size(), 5u);
  EXPECT_EQ(Histogram(logits, Hot(1.0, 1'000'000, 1.0), 4000).size(), 5u);
}

TEST(DrawToken, TopPKeepsTheSmallestSetThatReachesIt) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {std::log(0.1F), std::log(0.2F), std::log(0.3F),
                                     std::log(0.4F)};
  EXPECT_EQ(Histogram(logits, Hot(1.0, 0, 1e-9), 500).size(), 1u);
  EXPECT_EQ(Histogram(logits, Hot(1.0, 0, 0.39), 500).size(), 1u);
  const auto two = Histogram(logits, Hot(1.0, 0, 0.41), 20'000);
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(3) / 20'000.0, 0.4 / 0.7, 0.01);  // renormalised
  EXPECT_EQ(Histogram(logits, Hot(1.0, 0, 0.71), 2000).size(), 3u);
  EXPECT_EQ(Histogram(logits, Hot(1.0, 0, 0.95), 4000).size(), 4u);
  // The share of what top_k left: 0.4 / 0.7 = 0.57 > 0.5.
  EXPECT_EQ(Histogram(logits, Hot(1.0, 2, 0.5), 500).size(), 1u);
}

TEST(DrawToken, EqualsInTheNucleusGoByTheLowerId) {
  const std::vector<float> logits(8, 1.5F);
  const auto half = Histogram(logits, Hot(1.0, 0, 0.5), 4000);
  EXPECT_EQ(half.size(), 4u);
  EXPECT_EQ(half.rbegin()->first, 3);
}

TEST(DrawToken, ANucleusWiderThanTheFirstTryIsRight) {
  for (const std::size_t size : {64, 65, 1000, 1024, 1025, 20'000}) {
    const std::vector<float> equal(size, 0.0F);
    const Sampling sampling = Hot(1.0, 0, 0.75);
    const auto wanted = static_cast<TokenId>(std::ceil(0.75 * static_cast<double>(size)));
    EXPECT_EQ(Draw(equal, sampling, 0.0), 0) << size;
    EXPECT_EQ(Draw(equal, sampling, 0x1.fffffffffffffp-1), wanted - 1) << size;
  }
}

// The definition, as plainly as it can be written.
TokenId PlainDraw(const std::vector<float>& logits, const Sampling& sampling, double uniform) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto logit = [&](TokenId id) { return double{logits[static_cast<std::size_t>(id)]}; };
  std::ranges::stable_sort(ids, std::greater<>(), logit);
  if (sampling.top_k > 0)
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(sampling.top_k)));
  const auto weight = [&, largest = logit(ids[0])](TokenId id) {
    return std::exp((logit(id) - largest) / sampling.temperature);
  };
  double mass = 0.0;
  for (const TokenId id : ids) mass += weight(id);
  std::size_t kept = 0;
  for (double sum = 0.0; kept < ids.size() && (kept == 0 || sum < sampling.top_p * mass); ++kept)
    sum += weight(ids[kept]);
  ids.resize(kept);
  std::ranges::sort(ids);
  double total = 0.0;
  for (const TokenId id : ids) total += weight(id);
  double sum = 0.0;
  for (const TokenId id : ids) {
    sum += weight(id);
    if (sum > uniform * total) return id;
  }
  return ids.back();
}

TEST(DrawToken, AgreesWithThePlainDefinition) {
  std::mt19937 generator(11);
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  for (unsigned round = 0; round < 400; ++round) {
    std::vector<float> logits = RandomLogits(static_cast<std::size_t>(uniform(1.0, 3000.0)), round);
    if (round % 3 == 0)
      std::ranges::transform(logits, logits.begin(), [](float logit) { return std::round(logit); });
    const int64_t top_k = round % 2 == 0 ? 0 : static_cast<int64_t>(uniform(1.0, 600.0));
    const Sampling sampling =
        Hot(uniform(0.1, 3.0), top_k, round % 5 == 0 ? 1.0 : uniform(0.01, 1.0));
    for (int draw = 0; draw < 5; ++draw) {
      const double at = uniform(0.0, 1.0);
      ASSERT_EQ(Draw(logits, sampling, at), PlainDraw(logits, sampling, at))
          << round << ": " << logits.size() << " logits, temperature " << sampling.temperature
          << ", top_k " << top_k << ", top_p " << sampling.top_p << ", at " << at;
    }
  }
}

TEST(DrawToken, TheLimitsOfTheDrawAndOfTheTemperatureAreSafe) {
  const double last = 0x1.fffffffffffffp-1;
  std::vector<float> logits = {-kInf, 1.0F, 0.0F, -1e30F, -kInf};
  for (const Sampling& sampling : {Hot(1.0, 0, 1.0), Hot(1.0, 3, 1.0), Hot(1.0, 0, 0.99999)}) {
    EXPECT_EQ(Draw(logits, sampling, 0.0), 1);
    EXPECT_EQ(Draw(logits, sampling, last), 2);
  }
  for (const double uniform : {0.0, 0.5, last}) {
    EXPECT_EQ(Draw(logits, Hot(1e-300, 0, 1.0), uniform), 1);
    EXPECT_EQ(Draw(logits, Hot(5e-324, 0, 1.0), uniform), 1);
    EXPECT_EQ(Draw(logits, Hot(1e-10, 4, 0.9), uniform), 1);
    const float big = std::numeric_limits<float>::max();
    EXPECT_EQ(Draw({-big, big, -big}, Hot(1.0, 0, 1.0), uniform), 1);
  }
}

}  // namespace
}  // namespace spillway
