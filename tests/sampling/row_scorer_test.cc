#include "src/sampling/row_scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/requests/score_request.h"
#include "src/sampling/log_probability.h"
#include "src/sampling/random.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ChoiceScratch scratch;

double Exact(const std::vector<float>& logits, TokenId token) {
  long double sum = 0.0L;
  for (const float logit : logits) {
    sum += std::exp(static_cast<long double>(logit) - logits[static_cast<std::size_t>(token)]);
  }
  return static_cast<double>(-std::log(sum));
}

std::vector<float> RandomLogits(std::size_t size, double spread, uint64_t seed) {
  std::vector<float> logits(size);
  for (std::size_t at = 0; at < size; ++at) {
    logits[at] = static_cast<float>(spread * (UniformDraw(seed, 0, at) - 0.5));
  }
  return logits;
}

TEST(LogProbabilityTest, IsTheLogSoftmax) {
  for (const std::size_t size : {1UL, 2UL, 15UL, 16UL, 17UL, 1024UL, 1025UL, 4096UL, 50272UL}) {
    for (const double spread : {0.001, 1.0, 30.0, 400.0}) {
      const std::vector<float> logits = RandomLogits(size, spread, size);
      const float largest = *std::ranges::max_element(logits);
      for (const std::size_t token : {std::size_t{0}, size / 2, size - 1}) {
        const auto id = static_cast<TokenId>(token);
        const double exact = Exact(logits, id);
        EXPECT_NEAR(LogProbability(logits, id, largest), exact, 2e-6 + 1e-7 * std::abs(exact))
            << size << " " << spread;
      }
    }
  }
}

TEST(LogProbabilityTest, WhatCannotBeAddsNothing) {
  const std::vector<float> logits = {1.0F, -kInf, 1.0F, -3e38F};
  EXPECT_FLOAT_EQ(LogProbability(logits, 0, 1.0F), -std::log(2.0F));
  EXPECT_EQ(LogProbability(logits, 1, 1.0F), -kInf);
  EXPECT_FLOAT_EQ(LogProbability(std::vector<float>{3e38F, -3e38F}, 0, 3e38F), 0.0F);
}

TEST(ScorePrefillTest, IsWithinTheText) {
  EXPECT_EQ(ScorePrefill().Of(1, 10), 9);
  EXPECT_EQ((ScorePrefill{{}, true}).Of(4, 10), 4);
  EXPECT_EQ((ScorePrefill{{}, true}).Of(9, 10), 9);
  for (const bool stops : {false, true}) {
    EXPECT_EQ((ScorePrefill{3, stops}).Of(5, 10), 3);
    EXPECT_EQ((ScorePrefill{300, stops}).Of(5, 10), 9);
  }
  EXPECT_EQ((ScorePrefill{1, false}).Of(1, 2), 1);
}

TEST(ScoreRequestTest, KeepsEveryTokenAndCountsLogits) {
  const std::vector<TokenId> tokens = {9, 8, 7, 6, 5, 4};
  for (int64_t first = 1; first < 6; ++first) {
    for (int64_t prefill = 1; prefill < 6; ++prefill) {
      SCOPED_TRACE(CaseOf("first", first, "prefill", prefill));
      const Request request = ScoreRequest({tokens, first, 0}, {prefill, false});
      std::vector<TokenId> all = request.prompt;
      all.insert(all.end(), request.scored->told.begin(), request.scored->told.end());
      EXPECT_EQ(all, tokens);
      EXPECT_EQ(static_cast<int64_t>(request.prompt.size()), prefill);
      EXPECT_EQ(request.sampling.max_tokens, 6 - prefill);
      // Each pass after the first wants one; where the context goes on past it, some for nothing.
      EXPECT_EQ(request.NumLogits(), std::max(6 - first, 6 - prefill));
    }
  }
  EXPECT_TRUE(ScoreRequest({{3}, 1, 1}, {}).scored->told.empty());
}

// Logits with token 2 on top after position 0, token 3 after 1, and so on.
std::vector<float> LogitsAfter(int64_t position) {
  std::vector<float> logits = RandomLogits(40, 1.0, static_cast<uint64_t>(position));
  logits[static_cast<std::size_t>(position + 2)] += 5.0F;
  return logits;
}

// Feeds a text of tokens 1, 2, 3, ... through its passes.
Completion Feed(const Request& request) {
  RowScorer scorer(request);
  int64_t end = static_cast<int64_t>(request.prompt.size());
  for (int64_t begin = 0; scorer.status() == RowStatus::kRunning; ++end) {
    // Backwards: the order does not count.
    for (int64_t position = end - 1; position >= begin; --position) {
      std::vector<float> logits = LogitsAfter(position);
      scorer.See(position, logits, scratch);
    }
    begin = end;
    if (scorer.EndPass() == RowStatus::kRunning) {
      EXPECT_EQ(scorer.newest(), static_cast<TokenId>(end + 1));
    }
  }
  EXPECT_EQ(scorer.status(), RowStatus::kLength);
  return scorer.Take();
}

TEST(RowScorerTest, OnePassOrManyGiveTheSameScores) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7};
  for (const int64_t first : {1, 3, 6}) {
    for (const int64_t prefill : {1, 2, 5, 6}) {
      SCOPED_TRACE(CaseOf("first", first, "prefill", prefill));
      const Completion completion = Feed(ScoreRequest({tokens, first, 0}, {prefill, false}));
      ASSERT_EQ(static_cast<int64_t>(completion.scores.logprobs.size()), 7 - first);
      EXPECT_TRUE(completion.scores.greedy_match);
      for (int64_t token = first; token < 7; ++token) {
        EXPECT_NEAR(completion.scores.logprobs[static_cast<std::size_t>(token - first)],
                    Exact(LogitsAfter(token - 1), static_cast<TokenId>(token + 1)), 2e-6);
      }
    }
  }
}

TEST(RowScorerTest, OneOtherTokenIsNoGreedyMatch) {
  EXPECT_FALSE(Feed(ScoreRequest({{1, 2, 3, 4, 39}, 1, 0}, {})).scores.greedy_match);
  // Tokens that are not scored do not count.
  EXPECT_TRUE(Feed(ScoreRequest({{1, 39, 3, 4}, 2, 0}, {})).scores.greedy_match);
}

TEST(RowScorerTest, NonFiniteLogitsEndTheRow) {
  for (const float bad : {kNan, kInf}) {
    SCOPED_TRACE(CaseOf("bad", bad));
    const Request request = ScoreRequest({{1, 2, 3, 4}, 2, 0}, {2, false});
    RowScorer scorer(request);
    std::vector<float> context(40, kNan);
    scorer.See(0, context, scratch);  // of no scored token
    std::vector<float> good = LogitsAfter(1);
    scorer.See(1, good, scratch);
    EXPECT_EQ(scorer.EndPass(), RowStatus::kRunning);
    std::vector<float> logits = LogitsAfter(2);
    logits[7] = bad;
    scorer.See(2, logits, scratch);
    EXPECT_EQ(scorer.EndPass(), RowStatus::kNonFinite);
  }
}

}  // namespace
}  // namespace spillway
