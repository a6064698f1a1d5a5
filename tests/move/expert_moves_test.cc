#include "src/move/expert_moves.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/plan/place_weights.h"
#include "tests/plan/plan_test_util.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

// Mixtral's experts, one a layer, all on disk: layer 1 is attention, 2 the router, 3 to 10 experts.
class ExpertMovesTest : public testing::Test {
 protected:
  ExpertMovesTest() {
    ModelShape shape = *BuiltInShape("mixtral-8x7b");
    shape.num_layers = 2;
    Policy policy = Batches(1, 2);
    policy.weight_frac[Tier::kCpu] = 0.0;
    policy.weight_frac[Tier::kDisk] = 1.0;
    plan_ = LayOut(MakeModel(shape), MachineWith(1), WorkOf(2, {4, 4}), policy, kNeeds);
    grid_ = MakeSchedule(plan_);
  }

  // Moves of a layer that are needed in a pass.
  std::size_t NumNeeded(ExpertMoves& experts, int64_t pass, int64_t layer) const {
    const std::vector<Move> all(MovesOf(plan_, layer).size());
    return experts.Needed(grid_, {TaskKind::kLoadWeights, {pass, layer, 0}}, all, 0).size();
  }
  std::size_t NumAll(int64_t layer) const { return MovesOf(plan_, layer).size(); }

  Plan plan_;
  Schedule grid_;
  // Of two batches: experts 2 and 7, then 7.
  std::vector<uint8_t> first_ = {0, 0, 1, 0, 0, 0, 0, 1};
  std::vector<uint8_t> second_ = {0, 0, 0, 0, 0, 0, 0, 1};
};

TEST_F(ExpertMovesTest, ExpertsThatNoRowHasAreLeftOut) {
  ExpertMoves experts(plan_);
  experts.BeginBlock();
  experts.Note({3, 2, 0}, first_);
  experts.Note({3, 2, 1}, second_);
  for (int64_t layer = 5; layer <= 10; ++layer) {
    const bool chosen = layer == 3 + 2 || layer == 3 + 7;
    EXPECT_EQ(NumNeeded(experts, 3, layer), chosen ? NumAll(layer) : 0) << layer;
  }
}

// Two layers ahead of their compute loads begin before all batches have been through the router.
TEST_F(ExpertMovesTest, LoadsThatBeginBeforeTheChoiceBringAll) {
  ExpertMoves experts(plan_);
  experts.Note({3, 2, 0}, first_);
  for (const int64_t layer : {3, 4}) EXPECT_EQ(NumNeeded(experts, 3, layer), NumAll(layer));
  grid_.overlap = Overlap::kOff;  // when a layer is loaded at its own first cell
  for (const int64_t layer : {3, 4}) EXPECT_EQ(NumNeeded(experts, 3, layer), 0U);
}

// A GPU's choices are known when the first of the experts' layers is computed.
TEST_F(ExpertMovesTest, ChoicesMayBeKnownAtTheFirstExperts) {
  ExpertMoves experts(plan_);
  experts.Note({3, 2, 1}, {});
  experts.Note({3, 3, 1}, first_);
  for (int64_t layer = 3; layer <= 5; ++layer)
    EXPECT_EQ(NumNeeded(experts, 3, layer), NumAll(layer)) << layer;
  for (int64_t layer = 6; layer <= 9; ++layer) EXPECT_EQ(NumNeeded(experts, 3, layer), 0U) << layer;
  EXPECT_EQ(NumNeeded(experts, 3, 10), NumAll(10));
  EXPECT_EQ(NumNeeded(experts, 3, 16), NumAll(16));  // of the second decoder layer
}

TEST_F(ExpertMovesTest, ChoicesOfOtherPassesAndDecoderLayersDoNotCount) {
  ExpertMoves experts(plan_);
  experts.Note({3, 2, 0}, first_);
  EXPECT_EQ(NumNeeded(experts, 4, 6), NumAll(6));
  EXPECT_EQ(NumNeeded(experts, 3, 16), NumAll(16));  // of the second decoder layer
  experts.Note({4, 2, 0}, second_);
  EXPECT_EQ(NumNeeded(experts, 4, 5), 0U);
  experts.BeginBlock();
  EXPECT_EQ(NumNeeded(experts, 4, 5), NumAll(5));
}

TEST_F(ExpertMovesTest, OtherLayersBringAll) {
  ExpertMoves experts(plan_);
  experts.Note({3, 2, 0}, first_);
  experts.Note({3, 11, 0}, {});
  for (const int64_t layer : {1, 2, 11, 12}) EXPECT_EQ(NumNeeded(experts, 3, layer), NumAll(layer));
}

}  // namespace
}  // namespace spillway
