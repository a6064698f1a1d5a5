// Operations of the families' layers: which windows, scales, caps and rotary positions each has.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "spillway/model.h"

namespace spillway {
namespace {

// The operations of one kind in a layer.
template <typename T>
std::vector<T> OpsOf(const LayerSpec& layer) {
  std::vector<T> found;
  for (const Op& op : layer.ops) {
    if (const auto* of = std::get_if<T>(&op)) found.push_back(*of);
  }
  return found;
}

Model BuiltIn(const char* name) { return MakeModel(*BuiltInShape(name)); }

const LayerSpec& AttentionOf(const Model& model, std::size_t decoder_layer) {
  return model.layers[1 + 2 * decoder_layer];
}

TEST(FamilyLayersTest, EverySixthLayerOfGemma3SeesAllWithPositionsOfItsOwn) {
  const Model model = BuiltIn("gemma-3-4b");
  for (std::size_t layer = 0; layer < 34; ++layer) {
    const bool whole = (layer + 1) % 6 == 0;
    const Attend attend = OpsOf<Attend>(AttentionOf(model, layer)).at(0);
    EXPECT_EQ(attend.window, whole ? 0 : 1024) << layer;
    EXPECT_EQ(attend.scale, 0.0625F);
    EXPECT_EQ(attend.soft_cap, 0.0F);
    const Rope rope = OpsOf<Rotate>(AttentionOf(model, layer)).at(0).rope;
    EXPECT_EQ(rope.theta, whole ? 1e6 : 1e4) << layer;
    EXPECT_EQ(rope.scaling.kind, whole ? RopeScalingKind::kLinear : RopeScalingKind::kNone);
  }
  EXPECT_TRUE(OpsOf<SoftCap>(model.layers.back()).empty());
}

TEST(FamilyLayersTest, OlmoNormsWhatItAddsAndAllHeadsTogether) {
  const Model model = BuiltIn("olmo-2-32b");
  const LayerSpec& attention = AttentionOf(model, 0);
  const std::vector<Norm> norms = OpsOf<Norm>(attention);
  ASSERT_EQ(norms.size(), 1U);
  EXPECT_EQ(norms[0].y, Buf::kHidden);
  EXPECT_EQ(norms[0].plus, Buf::kHidden);
  for (std::size_t at = 0; at < 3; ++at)
    EXPECT_EQ(OpsOf<Linear>(attention).at(at).x, Buf::kHidden) << at;
  const std::vector<HeadNorm> heads = OpsOf<HeadNorm>(attention);
  ASSERT_EQ(heads.size(), 2U);
  EXPECT_EQ(heads[0].num_heads, 1);
  EXPECT_EQ(heads[0].size, 5120);
  EXPECT_EQ(heads[1].size, 1024);
  EXPECT_EQ(model.Tensor(heads[1].weight).rows, 1024);
  EXPECT_EQ(OpsOf<Norm>(model.layers[2]).size(), 1U);
}

TEST(FamilyLayersTest, GlmHasItsOwnNamesOfNorms) {
  const Model model = BuiltIn("glm-4-9b-0414");
  std::vector<std::string> names;
  for (const std::size_t layer : {1, 2}) {
    for (const Norm& norm : OpsOf<Norm>(model.layers[layer]))
      names.push_back(model.Tensor(norm.weight).name);
  }
  const std::string layer = "layers.0.";
  EXPECT_EQ(names,
            (std::vector<std::string>{
                layer + "input_layernorm.weight", layer + "post_self_attn_layernorm.weight",
                layer + "post_attention_layernorm.weight", layer + "post_mlp_layernorm.weight"}));
}

TEST(FamilyLayersTest, EveryFourthLayerOfSmolLm3TurnsNothing) {
  const Model model = BuiltIn("smollm3-3b");
  for (std::size_t layer = 0; layer < 36; ++layer) {
    const Rope rope = OpsOf<Rotate>(AttentionOf(model, layer)).at(0).rope;
    const std::vector<float> frequencies = InverseFrequencies(rope);
    ASSERT_EQ(frequencies.size(), 64U);
    EXPECT_EQ(frequencies.front(), layer % 4 == 3 ? 0.0F : 1.0F) << layer;
    EXPECT_EQ(frequencies.back() == 0.0F, layer % 4 == 3) << layer;
  }
}

TEST(FamilyLayersTest, GraniteScalesLogitsWithoutACap) {
  const Model model = BuiltIn("granite-3.3-8b");
  const SoftCap scale = OpsOf<SoftCap>(model.layers.back()).at(0);
  EXPECT_EQ(scale.cap, 0.0F);
  EXPECT_EQ(scale.scale, 0.0625F);
  EXPECT_FLOAT_EQ(OpsOf<Gather>(model.layers.front()).at(0).scale, 12.0F / 0.22F);
  EXPECT_EQ(OpsOf<Attend>(AttentionOf(model, 0)).at(0).scale, 0.0078125F);
}

TEST(FamilyLayersTest, GraniteHasItsOwnNamesOfMatrices) {
  const Model four = BuiltIn("granite-4.0-micro");
  const TensorSpec& up = four.Tensor(OpsOf<Linear>(four.layers[2]).at(1).weight);
  EXPECT_EQ(up.name, "layers.0.shared_mlp.up_proj.weight");
  ASSERT_EQ(up.sources.size(), 1U);
  EXPECT_EQ(up.sources.front().name, "layers.0.shared_mlp.input_linear.weight");
  EXPECT_EQ(up.sources.front().first_row, 8192);
  EXPECT_EQ(four.Tensor(OpsOf<Linear>(four.layers[2]).at(2).weight).name,
            "layers.0.shared_mlp.output_linear.weight");
  const Model three = BuiltIn("granite-3.1-1b-a400m");
  const TensorRef router = OpsOf<Linear>(three.layers[2]).at(0).weight;
  EXPECT_EQ(three.Tensor(router).name, "layers.0.block_sparse_moe.router.layer.weight");
  const Experts experts = OpsOf<Experts>(three.layers[3]).at(0);
  const TensorSource down = three.Tensor(experts.experts.at(1).down.weight).sources.front();
  EXPECT_EQ(down.name, "layers.0.block_sparse_moe.output_linear.weight");
  EXPECT_EQ(down.stacked.index, 1);
}

TEST(FamilyLayersTest, GptOssHasSinksEverywhereAndAWindowInEveryOtherLayer) {
  const Model model = BuiltIn("gpt-oss-20b");
  int64_t decoder_layer = 0;
  for (const LayerSpec& layer : model.layers) {
    if (layer.part != ComputePart::kAttention) continue;
    const Attend attend = OpsOf<Attend>(layer).at(0);
    EXPECT_EQ(attend.window, decoder_layer % 2 == 0 ? 128 : 0) << decoder_layer;
    EXPECT_EQ(attend.scale, 0.125F);
    ASSERT_TRUE(attend.sinks.exists());
    EXPECT_EQ(model.Tensor(attend.sinks).rows, 64);
    for (const Linear& product : OpsOf<Linear>(layer)) EXPECT_TRUE(product.bias.exists());
    const Rope rope = OpsOf<Rotate>(layer).at(0).rope;
    EXPECT_EQ(rope.scaling.kind, RopeScalingKind::kYarn);
    EXPECT_FALSE(rope.scaling.whole_pairs);
    EXPECT_NEAR(rope.scaling.attention_factor, 1.3466, 1e-4);
    ++decoder_layer;
  }
  EXPECT_EQ(decoder_layer, 24);
  EXPECT_FALSE(OpsOf<Attend>(AttentionOf(BuiltIn("gemma-2-2b"), 0)).at(0).sinks.exists());
}

TEST(FamilyLayersTest, Gemma2CapsScoresAndLogitsAndHasAWindowInEveryOtherLayer) {
  const Model model = BuiltIn("gemma-2-27b");
  for (std::size_t layer = 0; layer < 4; ++layer) {
    const Attend attend = OpsOf<Attend>(AttentionOf(model, layer)).at(0);
    EXPECT_EQ(attend.window, layer % 2 == 0 ? 4096 : 0) << layer;
    EXPECT_FLOAT_EQ(attend.scale, 1.0F / 12.0F);  // of 144, not of heads of 128
    EXPECT_EQ(attend.soft_cap, 50.0F);
  }
  EXPECT_EQ(OpsOf<SoftCap>(model.layers.back()).at(0).cap, 30.0F);
  EXPECT_EQ(OpsOf<Gather>(model.layers.front()).at(0).scale, 68.0F);  // sqrt(4608) in bf16
}

TEST(FamilyLayersTest, WhatGemmaAddsToTheStatesIsNormedFirst) {
  for (const std::size_t layer : {1, 2}) {
    const Model model = BuiltIn("gemma-2-2b");
    const std::vector<Norm> norms = OpsOf<Norm>(model.layers[layer]);
    ASSERT_EQ(norms.size(), 2U);
    EXPECT_EQ(norms[1].y, Buf::kHidden);
    EXPECT_EQ(norms[1].plus, Buf::kHidden);
    EXPECT_FALSE(OpsOf<Linear>(model.layers[layer]).back().plus.has_value());
    for (const Norm& norm : norms) EXPECT_EQ(norm.weight_offset, 1.0F);
  }
  EXPECT_EQ(OpsOf<Norm>(BuiltIn("gemma-2b").layers[1]).size(), 1U);
}

TEST(FamilyLayersTest, Qwen3NormsHeadsBeforeItTurnsThem) {
  const Model model = BuiltIn("qwen3-32b");
  const std::vector<HeadNorm> norms = OpsOf<HeadNorm>(model.layers[1]);
  ASSERT_EQ(norms.size(), 2U);
  EXPECT_EQ(norms[0].num_heads, 64);
  EXPECT_EQ(norms[1].x.begin, 64 * 128);
  EXPECT_EQ(norms[1].num_heads, 8);
  EXPECT_EQ(model.Tensor(norms[1].weight).name, "layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(model.Tensor(norms[1].weight).rows, 128);
}

TEST(FamilyLayersTest, Qwen2HasBiasesOfQueriesKeysAndValuesOnly) {
  const Model model = BuiltIn("qwen2.5-7b");
  const std::vector<Linear> products = OpsOf<Linear>(model.layers[1]);
  ASSERT_EQ(products.size(), 4U);
  for (const std::size_t product : {0, 1, 2}) EXPECT_TRUE(products[product].bias.exists());
  EXPECT_FALSE(products[3].bias.exists());
  for (const Linear& product : OpsOf<Linear>(model.layers[2])) EXPECT_FALSE(product.bias.exists());
}

}  // namespace
}  // namespace spillway
