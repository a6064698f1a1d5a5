// Layers of models with experts: how many, which tensors, under which names.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "spillway/grid.h"
#include "spillway/model.h"
#include "spillway/plan.h"

namespace spillway {
namespace {

Model BuiltIn(const char* name) { return MakeModel(*BuiltInShape(name)); }

const Experts* ExpertsOf(const LayerSpec& layer) {
  for (const Op& op : layer.ops) {
    if (const auto* experts = std::get_if<Experts>(&op)) return experts;
  }
  return nullptr;
}

TEST(ExpertLayersTest, PublishedModelsHaveTheirParameters) {
  EXPECT_EQ(NumParameters(BuiltIn("mixtral-8x7b")), 46702792704);
  EXPECT_EQ(NumParameters(BuiltIn("qwen3-30b-a3b")), 30532122624);
  EXPECT_EQ(NumParameters(BuiltIn("qwen3-235b-a22b")), 235093634560);
  EXPECT_EQ(NumParameters(BuiltIn("qwen1.5-moe-a2.7b")), 14315784192);
}

// Ascending, without gaps, and each once: the order in which a token's sum is made.
TEST(ExpertLayersTest, AllExpertsFollowTheirRouterInOrder) {
  const Model model = BuiltIn("qwen1.5-moe-a2.7b");
  int64_t next = -1;
  for (const LayerSpec& layer : model.layers) {
    const Experts* experts = ExpertsOf(layer);
    if (layer.part == ComputePart::kAttention) {
      EXPECT_TRUE(next == -1 || next == 61) << layer.decoder_layer;
      next = 0;
    }
    if (experts == nullptr) continue;
    EXPECT_EQ(experts->first, next);
    EXPECT_LE(experts->experts.size(), 8U);
    next += std::ssize(experts->experts);
  }
}

TEST(ExpertLayersTest, ARoutersProductsAreOfFp32AndNeverQuantised) {
  ModelShape shape = *BuiltInShape("qwen1.5-moe-a2.7b");
  shape.weight_bits = 4;
  const Model model = MakeModel(shape);
  const LayerSpec& router = model.layers[2];
  const std::vector<const Linear*> products = ProductsOf(router.ops);
  ASSERT_EQ(products.size(), 2U);
  for (const Linear* product : products) {
    EXPECT_EQ(product->arithmetic, Arithmetic::kFp32);
    EXPECT_EQ(model.Tensor(product->weight).dtype, DType::kF16);
  }
  EXPECT_EQ(model.Tensor(ProductsOf(model.layers[3].ops)[0]->weight).dtype, DType::kQ4);
}

TEST(ExpertLayersTest, NamesAreThoseOfTheFamilyAndDistinct) {
  const Model mixtral = BuiltIn("mixtral-8x7b");
  EXPECT_EQ(mixtral.Tensor(ExpertsOf(mixtral.layers[4])->experts[0].up.weight).name,
            "layers.0.block_sparse_moe.experts.1.w3.weight");
  const TensorSpec& down = mixtral.Tensor(ExpertsOf(mixtral.layers[4])->experts[0].down.weight);
  EXPECT_EQ(down.name, "layers.0.block_sparse_moe.experts.1.w2.weight");
  EXPECT_EQ(down.sources[0].name, "layers.0.mlp.experts.down_proj");
  EXPECT_EQ(down.sources[0].stacked, (Stacked{8, 1}));
  std::set<std::string> names;
  for (const LayerSpec& layer : mixtral.layers) {
    for (const TensorSpec& tensor : layer.tensors) EXPECT_TRUE(names.insert(tensor.name).second);
  }
}

// Gate and up lie in one stack, in turns: transposed as values, not as codes; biases beside them.
TEST(ExpertLayersTest, GptOssHasBiasesAndRowsInTurns) {
  const Model model = BuiltIn("gpt-oss-20b");
  EXPECT_EQ(NumParameters(model), 20914757184);
  EXPECT_EQ(NumParameters(BuiltIn("gpt-oss-120b")), 116829156672);
  const Linear* router = ProductsOf(model.layers[2].ops)[0];
  EXPECT_EQ(model.Tensor(router->weight).name, "layers.0.mlp.router.weight");
  EXPECT_EQ(model.Tensor(router->bias).name, "layers.0.mlp.router.bias");
  const Expert& expert = ExpertsOf(model.layers[3])->experts[1];
  EXPECT_EQ(expert.gate.activation, Activation::kClampedSwish);
  EXPECT_EQ(expert.up.activation, Activation::kClampedOffset);
  EXPECT_EQ(expert.up.times, Buf::kGate);
  const TensorSpec& up = model.Tensor(expert.up.weight);
  EXPECT_EQ(up.sources,
            (std::vector<TensorSource>{
                {"layers.0.mlp.experts.gate_up_proj", 1, 5760, true, {1, 2}, {32, 1}},
                {"layers.0.mlp.experts.gate_up_proj_blocks", 1, 5760, false, {1, 2}, {32, 1}},
                {"layers.0.mlp.experts.up_proj.weight", 0, 0, false, {}, {32, 1}}}));
  const TensorSpec& bias = model.Tensor(expert.gate.bias);
  EXPECT_EQ(bias.name, "layers.0.mlp.experts.1.gate_proj.bias");
  EXPECT_EQ(bias.sources,
            (std::vector<TensorSource>{
                {"layers.0.mlp.experts.gate_up_proj_bias", 0, 5760, false, {1, 2}, {32, 1}},
                {"layers.0.mlp.experts.gate_proj.bias", 0, 0, false, {}, {32, 1}}}));
  EXPECT_EQ(model.Tensor(expert.down.weight).sources[0].num_rows, 2880);
}

// States of a token: its hidden states, the experts' input, its choice.
TEST(ExpertLayersTest, StatesHoldWhatLaterLayersOfExpertsRead) {
  const ModelShape shape = *BuiltInShape("qwen3-30b-a3b");
  EXPECT_EQ(StateColumn(shape, Buf::kExpertIn), 2048);
  EXPECT_EQ(StateColumn(shape, Buf::kChoice), 4096);
  EXPECT_EQ(StateWidth(shape), 4112);
  EXPECT_EQ(StateWidth(*BuiltInShape("qwen3-8b")), 4096);
}

// All batches go through a layer of experts before the next one is begun: it is loaded once.
TEST(ExpertLayersTest, LayersOfExpertsAreGroupsOfTheirOwn) {
  const Model model = BuiltIn("mixtral-8x7b");
  std::vector<PlannedLayer> layers;
  for (const LayerSpec& layer : model.layers) {
    layers.push_back({layer.part, layer.decoder_layer, {}, layer.ops, Attends(layer.ops)});
  }
  const std::vector<GridLayer> grid = MakeGrid(layers, GridOrder::kByDecoderLayer);
  EXPECT_EQ(grid[1].group, grid[2].group);  // attention and router
  for (std::size_t layer = 3; layer <= 10; ++layer) {
    EXPECT_EQ(grid[layer].group_begin, static_cast<int64_t>(layer));
    EXPECT_EQ(grid[layer].group_end, static_cast<int64_t>(layer));
  }
  EXPECT_EQ(grid[11].group_end, 12);
}

}  // namespace
}  // namespace spillway
