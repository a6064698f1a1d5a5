#include "src/compute/layer_runner.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/plan/place_weights.h"
#include "tests/expect_error.h"
#include "tests/plan/plan_test_util.h"
#include "tests/workload_of.h"

namespace spillway {
namespace {

using ::testing::ElementsAre;

Plan PlanOf(const char* model, const PerTier<double>& weight_frac) {
  Policy policy;
  policy.weight_frac = weight_frac;
  policy.kv_frac[Tier::kCpu] = policy.activation_frac[Tier::kCpu] = 1.0;
  policy.gpu_batch_size = policy.num_gpu_batches = 1;
  return MakePlan(MakeModel(*BuiltInShape(model)), MachineWith(int64_t{1} << 40, int64_t{1} << 40),
                  WorkOf(1, {10, 6}), policy, kNeeds);
}

// Notes what it is asked for; every buffer has an address of its own, none is touched.
class NotingOps final : public OpSet, private ExpertOps {
 public:
  explicit NotingOps(const Plan& plan) : plan_(plan) {}

  static float* Address(Buf buf) {
    return reinterpret_cast<float*>((static_cast<uintptr_t>(buf) + 1) << 40);
  }

  Rows At(Buf buf) override { return {Address(buf), WidthOf(plan_.shape, buf)}; }
  void Gather(const TableGather& gather) override {
    calls.push_back(gather.update == Update::kAdd ? "gather+" : "gather");
  }
  void Norm(const kernels::NormArgs&) override { calls.push_back("norm"); }
  void NormHeads(const kernels::HeadNormArgs&) override { calls.push_back("norm heads"); }
  void Rotate(const kernels::RotateArgs& args) override {
    calls.push_back("rotate");
    rotation = args;
  }
  void SoftCap(const kernels::SoftCapArgs&) override { calls.push_back("cap"); }
  void Multiply(const kernels::MatmulArgs& args) override {
    calls.push_back("product");
    pieces.assign(args.pieces.begin(), args.pieces.end());
    in = args.in;
  }
  ExpertOps& experts() override { return *this; }

  std::vector<std::string> calls;
  std::vector<kernels::MatmulPiece> pieces;  // of the last product
  int64_t in = 0;
  kernels::RotateArgs rotation;  // the last

 private:
  bool Choose(const kernels::ChooseExpertsArgs&) override {
    calls.push_back("choose");
    return false;
  }
  ExpertTokens Put(const ExpertTokens& tokens) override {
    calls.push_back(fmt::format("put {}", tokens.size()));
    return tokens;
  }
  void TakeRows(const kernels::TakeExpertRowsArgs& args) override {
    calls.push_back(fmt::format("take {}", args.rows.size()));
  }
  void AddRows(const kernels::AddExpertRowsArgs& args) override {
    calls.push_back(fmt::format("add {}", args.weights.size()));
  }

  const Plan& plan_;
};

class LayerRunnerTest : public ::testing::Test {
 protected:
  // Calls, attention among them, of one layer.
  std::vector<std::string> CallsOf(const Plan& plan, std::size_t layer) {
    const HostArena arena(plan.arena_bytes[Tier::kCpu]);  // of which nothing is touched
    LayerRunner runner(plan, arena);
    NotingOps ops(plan);
    runner.Run(plan.layers[layer], {ops.At(Buf::kHidden), 1}, ops,
               [&](const Attend&) { ops.calls.push_back("attend"); });
    last_ = ops.pieces;
    in_ = ops.in;
    return ops.calls;
  }

  std::vector<kernels::MatmulPiece> last_;  // of the layer's last product
  int64_t in_ = 0;
};

TEST_F(LayerRunnerTest, QueriesKeysAndValuesAreOneProduct) {
  const Plan plan = PlanOf("opt-125m", {{0.0, 1.0, 0.0}});
  EXPECT_THAT(CallsOf(plan, 0), ElementsAre("gather", "gather+"));
  EXPECT_THAT(CallsOf(plan, 1), ElementsAre("norm", "product", "attend", "product"));
  EXPECT_THAT(CallsOf(plan, 2), ElementsAre("norm", "product", "product"));
  EXPECT_THAT(CallsOf(plan, plan.layers.size() - 1), ElementsAre("norm", "product"));
}

TEST_F(LayerRunnerTest, NormsAreBehindTheSumsAndEmbeddingsProjectedWhereTheModelSaysSo) {
  const Plan plan = PlanOf("opt-350m", {{0.0, 1.0, 0.0}});
  EXPECT_THAT(CallsOf(plan, 0), ElementsAre("gather", "product", "gather+"));
  EXPECT_THAT(CallsOf(plan, 1), ElementsAre("product", "attend", "product", "norm"));
  EXPECT_THAT(CallsOf(plan, plan.layers.size() - 1), ElementsAre("product", "product"));
}

TEST_F(LayerRunnerTest, QueriesAndKeysAreRotatedAndTheMlpIsGated) {
  const Plan plan = PlanOf("llama-3.2-1b", {{0.0, 1.0, 0.0}});
  EXPECT_THAT(CallsOf(plan, 0), ElementsAre("gather"));
  EXPECT_THAT(CallsOf(plan, 1), ElementsAre("norm", "product", "rotate", "attend", "product"));
  EXPECT_THAT(CallsOf(plan, 2), ElementsAre("norm", "product", "product", "product"));
}

TEST_F(LayerRunnerTest, PartsAreNormedBeforeTheyAreAddedAndLogitsCapped) {
  const Plan plan = PlanOf("gemma-2-2b", {{0.0, 1.0, 0.0}});
  const std::size_t head = plan.layers.size() - 1;
  Plan unwindowed = plan;
  for (PlannedLayer& layer : unwindowed.layers) {
    for (Op& op : layer.ops) {
      if (auto* attend = std::get_if<Attend>(&op)) *attend = {.scale = attend->scale};
    }
  }
  EXPECT_THAT(CallsOf(unwindowed, 1),
              ElementsAre("norm", "product", "rotate", "attend", "product", "norm"));
  EXPECT_THAT(CallsOf(unwindowed, 2), ElementsAre("norm", "product", "product", "product", "norm"));
  EXPECT_THAT(CallsOf(unwindowed, head), ElementsAre("norm", "product", "cap"));
}

TEST_F(LayerRunnerTest, QueriesAndKeysAreNormedHeadByHead) {
  EXPECT_THAT(
      CallsOf(PlanOf("qwen3-0.6b", {{0.0, 1.0, 0.0}}), 1),
      ElementsAre("norm", "product", "norm heads", "norm heads", "rotate", "attend", "product"));
}

// Three tokens: expert 0 has two of them, expert 1 one; the layer's program has nothing else.
TEST_F(LayerRunnerTest, AnExpertTakesItsTokensAndAddsToThem) {
  const Plan plan = PlanOf("qwen3-30b-a3b", {{0.0, 0.0, 1.0}});
  EXPECT_THAT(CallsOf(plan, 2), ElementsAre("norm", "product", "choose"));
  const HostArena arena(plan.arena_bytes[Tier::kCpu]);
  LayerRunner runner(plan, arena);
  std::vector<float> state(static_cast<std::size_t>(StateWidth(plan.shape)));
  std::vector<std::vector<float>> choices(3, std::vector<float>(16, 100.0F));
  choices[0][3] = choices[2][0] = 0.0F;
  choices[1][7] = 1.0F;
  std::vector<GatheredToken> tokens;
  for (const std::vector<float>& choice : choices) tokens.push_back({state.data(), choice.data()});
  NotingOps ops(plan);
  runner.RunExperts(std::get<Experts>(plan.layers[3].ops.front()), tokens, ops);
  EXPECT_THAT(ops.calls, ElementsAre("put 3", "take 2", "product", "product", "product", "add 2",
                                     "take 1", "product", "product", "product", "add 1"));
}

// A tied head multiplies with the first layer's table.
TEST_F(LayerRunnerTest, ATiedHeadUsesTheTable) {
  const Plan plan = PlanOf("opt-125m", {{0.0, 1.0, 0.0}});
  CallsOf(plan, plan.layers.size() - 1);
  ASSERT_EQ(last_.size(), 1U);
  EXPECT_EQ(last_[0].num_out, plan.shape.vocab_size);
  EXPECT_EQ(last_[0].y, NotingOps::Address(Buf::kLogits));
}

// The first MLP's last matrix, 32 MiB in 16 tiles; those from disk are read one by one.
TEST_F(LayerRunnerTest, TilesThatLieTogetherAreOnePiece) {
  for (const auto& [cpu, pieces] : {std::pair{1.0, 1U}, {0.0, 1U}, {0.5, 2U}}) {
    SCOPED_TRACE(cpu);
    CallsOf(PlanOf("opt-1.3b", {{0.0, cpu, 1.0 - cpu}}), 2);
    EXPECT_EQ(last_.size(), pieces);
    int64_t num_out = 0;
    const std::byte* end = nullptr;
    for (const kernels::MatmulPiece& piece : last_) {
      EXPECT_EQ(piece.y, NotingOps::Address(Buf::kHidden) + num_out);
      EXPECT_EQ(piece.residual, piece.y);
      const auto* begin = static_cast<const std::byte*>(piece.weight);
      EXPECT_NE(begin, end);
      end = begin + piece.num_out * in_ * 2;
      num_out += piece.num_out;
    }
    EXPECT_EQ(num_out, 2048);
  }
}

TEST_F(LayerRunnerTest, WhatNoKernelComputesIsRefused) {
  Plan plan = PlanOf("opt-125m", {{0.0, 1.0, 0.0}});
  const HostArena arena(plan.arena_bytes[Tier::kCpu]);
  plan.layers[1].ops.push_back(Rotate{{Buf::kQkv}, 1, {10000.0, 514}});
  testing::ExpectError(ErrorCode::kModelUnsupported, "514 elements",
                       [&] { LayerRunner(plan, arena); });
}

}  // namespace
}  // namespace spillway
