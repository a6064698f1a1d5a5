#include "src/verbs/head_calibration.h"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway {
namespace {

// Heads that each add a disturbance of their own: of divergence cost / share^2, less what it is
// with all tokens, of either sign, so that the mean of the log-probabilities stays.
struct Disturbed {
  HeadShares costs;
  std::vector<std::size_t> calls = {};  // rows of each call of measure_less

  WindowLogprobs Logprobs(const HeadShares& shares) const {
    double divergence = 0.0;
    for (std::size_t layer = 0; layer < costs.size(); ++layer) {
      for (std::size_t head = 0; head < costs[layer].size(); ++head)
        divergence += costs[layer][head] * (std::pow(shares[layer][head], -2.0) - 1.0);
    }
    const auto step = static_cast<float>(std::sqrt(2.0 * divergence));
    return {{-2.0F + step, -2.0F - step}, {-1.0F - step, -1.0F + step}};
  }
  HeadCalibrationJob Job() {
    HeadCalibrationJob job;
    job.num_layers = std::ssize(costs);
    job.num_kv_heads = std::ssize(costs.front());
    job.joint_sets = {WindowSet::kLongPrompts, WindowSet::kShortPrompts};
    job.num_windows = 2;
    job.measure_less = [this](int64_t window, std::span<const KvLess> places,
                              const TellLogprobs& tell) {
      calls.push_back(places.size());
      const auto at = static_cast<std::size_t>(window);
      const HeadShares whole(costs.size(), std::vector<double>(costs.front().size(), 1.0));
      tell(Logprobs(whole)[at]);
      for (const KvLess& less : places) {
        HeadShares shares = whole;
        for (std::size_t layer = 0; layer < costs.size(); ++layer) {
          for (std::size_t head = 0; head < costs[layer].size(); ++head) {
            if (less.IsAt({static_cast<int64_t>(layer), static_cast<int64_t>(head)}))
              shares[layer][head] = less.kept_frac;
          }
        }
        tell(Logprobs(shares)[at]);
      }
    };
    job.measure = [this](const HeadShares& shares, WindowSet) { return Logprobs(shares); };
    job.reference = [](WindowSet) { return WindowLogprobs{{-2.0F, -2.0F}, {-1.0F, -1.0F}}; };
    job.note_costs = [](const std::vector<double>&) {};
    job.bytes = [](const HeadShares& shares) {
      return JointLoss{shares, {}, {}, 0.0}.mean_share();
    };
    return job;
  }
  HeadCalibrationJob JobWithCosts() {
    HeadCalibrationJob job = Job();
    job.known_costs = CostsOfHeads(job);
    return job;
  }
};

TEST(HeadCalibration, FindsWhatEachHeadCosts) {
  Disturbed model = {{{1e-6, 4e-6}, {9e-6, 1e-6}}};
  std::vector<std::size_t> noted;
  HeadCalibrationJob job = model.Job();
  job.note_costs = [&](const std::vector<double>& costs) { noted.push_back(costs.size()); };
  EXPECT_EQ(NumPlaces(job), 6);
  EXPECT_EQ(NumCosts(job), 12);
  const std::vector<double> costs = CostsOfHeads(job);
  EXPECT_EQ(model.calls, (std::vector<std::size_t>{6, 6}));
  ASSERT_EQ(noted.size(), 12U);
  EXPECT_EQ(noted.front(), 1U);
  EXPECT_EQ(noted.back(), 12U);
  ASSERT_EQ(costs.size(), 12U);  // four heads and two layers, in two windows
  for (std::size_t head = 0; head < 4; ++head)
    EXPECT_NEAR(costs[head] / costs[0], model.costs[head / 2][head % 2] / 1e-6, 0.2) << head;
  job.known_costs.assign(costs.begin(), costs.begin() + 5);
  model.calls.clear();
  EXPECT_EQ(CostsOfHeads(job), costs);
  EXPECT_EQ(model.calls, (std::vector<std::size_t>{1, 6}));
  job.known_costs = costs;
  job.sizes = {0.5};
  const HeadFindings found = FindHeadBudgets(job);
  for (const double exponent : found.exponents) EXPECT_NEAR(exponent, 2.3, 0.1);
  EXPECT_DOUBLE_EQ(found.costs[1][0], (costs[2] + costs[8]) / 2.0);
}

TEST(HeadCalibration, KeepsTheLeastWithinTheBound) {
  Disturbed model = {{{1e-4, 4e-4}, {9e-4, 1e-4}}};
  HeadCalibrationJob job = model.JobWithCosts();
  job.max_loss = 0.02;
  const HeadFindings found = FindHeadBudgets(job);
  EXPECT_LE(found.joint.worst(), 0.02);
  EXPECT_GT(found.joint.worst(), 0.015) << "it could have kept less";
  EXPECT_LT(found.joint.mean_share(), 0.5);
  EXPECT_LT(found.joint.shares[0][0], found.joint.shares[0][1]);
  EXPECT_LT(found.joint.shares[0][1], found.joint.shares[1][0]);
  EXPECT_EQ(found.joint.shares[0][0], found.joint.shares[1][1]);
  EXPECT_TRUE(std::ranges::is_sorted(found.tried, {}, &JointLoss::mean_share));
  job.max_loss = 0.0;
  const HeadFindings whole = FindHeadBudgets(job);
  EXPECT_EQ(whole.joint.mean_share(), 1.0) << "nothing less is within the bound";
  EXPECT_EQ(whole.joint.shares, (HeadShares{{1.0, 1.0}, {1.0, 1.0}}));
}

TEST(HeadCalibration, BytesAreFilled) {
  Disturbed model = {{{1e-4, 4e-4}, {9e-4, 1e-4}}};
  HeadCalibrationJob job = model.JobWithCosts();
  job.sizes = {0.3};
  const HeadFindings found = FindHeadBudgets(job);
  EXPECT_LE(found.joint.mean_share(), 0.3);
  EXPECT_GT(found.joint.mean_share(), 0.298);
  ASSERT_EQ(found.tried.size(), 1U);
  ASSERT_EQ(found.joint.sets.size(), 2U);
}

TEST(HeadCalibration, TriesSizesUntilOneIsOfNoUse) {
  Disturbed model = {{{1e-4, 4e-4}, {9e-4, 1e-4}}};
  HeadCalibrationJob job = model.JobWithCosts();
  job.kv_bits = {8, 4};
  job.sizes = {1.0, 0.9, 0.5, 0.3, 0.2, 0.1, 0.05};
  job.max_loss = 0.02;
  job.most_useful_loss = 0.05;
  const HeadFindings found = FindHeadBudgets(job);
  ASSERT_GT(found.tried.size(), 3U);
  ASSERT_LT(found.tried.size(), job.sizes.size());
  EXPECT_EQ(found.tried.back().mean_share(), 1.0);
  EXPECT_GT(found.tried[0].worst(), 0.05);
  EXPECT_LE(found.tried[1].worst(), 0.05);
  EXPECT_LE(found.joint.worst(), 0.02);
  for (const JointLoss& joint : found.tried) {
    EXPECT_EQ(joint.kv_bits, KvBits(8, 4));
    EXPECT_DOUBLE_EQ(joint.bytes, joint.mean_share());
    EXPECT_TRUE(joint.bytes >= found.joint.bytes || joint.worst() > 0.02);
  }
  job.max_loss = -1.0;
  EXPECT_EQ(FindHeadBudgets(job).joint.mean_share(), 1.0) << "none is within the bound";
}

TEST(HeadCalibration, LossesHaveTheirErrors) {
  const SetLoss loss = LossOf(WindowSet::kLongPrompts, {{-1.0F, -1.0F}, {-2.0F, -2.0F}},
                              {{-1.1F, -1.1F}, {-2.3F, -2.3F}});
  EXPECT_EQ(loss.num_tokens, 4);
  EXPECT_NEAR(loss.full, 1.5, 1e-6);
  EXPECT_NEAR(loss.loss, 0.2, 1e-6);
  EXPECT_NEAR(loss.loss_error.value(), 0.1, 1e-6);  // of 0.1 and 0.3
  EXPECT_NEAR(loss.divergence, (std::expm1(-0.1) + 0.1 + std::expm1(-0.3) + 0.3) / 2.0, 1e-6);
}

// A token that the model thought impossible does not decide alone.
TEST(HeadCalibration, OneTokenIsBounded) {
  const SetLoss loss = LossOf(WindowSet::kOneHead, {{-90.0F, -1.0F}}, {{-1.0F, -1.0F}});
  EXPECT_LT(loss.divergence, 10.0);
  EXPECT_FALSE(loss.loss_error) << "of one window";
}

}  // namespace
}  // namespace spillway
