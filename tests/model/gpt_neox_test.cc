#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/expect_error.h"
#include "tests/model/config_shape.h"
#include "tests/model_util.h"

namespace spillway {
namespace {

using nlohmann::json;

// config.json of a small GPT-NeoX, as published ones are.
json TinyNeox() {
  return {
      {"model_type", "gpt_neox"}, {"hidden_size", 32},        {"intermediate_size", 48},
      {"num_hidden_layers", 2},   {"num_attention_heads", 2}, {"vocab_size", 40},
      {"hidden_act", "gelu"},     {"layer_norm_eps", 1e-6},   {"max_position_embeddings", 64},
      {"rotary_emb_base", 10000}, {"rotary_pct", 0.25},       {"attention_probs_dropout_prob", 0},
      {"hidden_dropout_prob", 0}, {"classifier_dropout", 0.1}};
}

ModelShape ShapeWith(const json& more) {
  json config = TinyNeox();
  config.update(more);
  return testing::ShapeOf(config);
}

TEST(GptNeoxTest, DefaultsAreTransformers) {
  const ModelShape shape = ShapeWith(json::object());
  EXPECT_TRUE(shape.parallel_residual && shape.qkv_bias && shape.out_bias && shape.mlp_bias);
  EXPECT_FALSE(shape.tied_head || shape.gated_mlp);
  EXPECT_EQ(shape.rope, (Rope{10000.0, 4}));
  EXPECT_EQ(shape.activation, Activation::kGelu);
  EXPECT_EQ(shape.norm_epsilon, 1e-6);
  EXPECT_EQ(shape.bos, 0);
}

TEST(GptNeoxTest, EverySwitchIsRead) {
  EXPECT_FALSE(ShapeWith({{"use_parallel_residual", false}}).parallel_residual);
  const ModelShape unbiased = ShapeWith({{"attention_bias", false}});
  EXPECT_FALSE(unbiased.qkv_bias || unbiased.out_bias);
  EXPECT_TRUE(unbiased.mlp_bias);
  EXPECT_TRUE(ShapeWith({{"tie_word_embeddings", true}}).tied_head);
  EXPECT_EQ(ShapeWith({{"hidden_act", "gelu_fast"}}).activation, Activation::kGeluTanh);
  EXPECT_EQ(ShapeWith({{"rotary_pct", 1.0}, {"rotary_emb_base", 500}}).rope, (Rope{500.0, 16}));
  EXPECT_EQ(ShapeWith({{"rotary_pct", nullptr}}).rope.dims, 4) << "a quarter, unless it says more";
  const json parameters = {{"rope_theta", 700.0}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(ShapeWith({{"rope_parameters", parameters}}).rope, (Rope{700.0, 8}));
  EXPECT_EQ(ShapeWith({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}}).rope.scaling.kind,
            RopeScalingKind::kLinear);
}

TEST(GptNeoxTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  testing::ExpectError(ErrorCode::kModelUnsupported, "\"hidden_act\" is \"quick_gelu\"", [] {
    ShapeWith({{"hidden_act", "quick_gelu"}});
  });
  testing::ExpectError(ErrorCode::kModelUnsupported, "\"sliding_window\" is not known here", [] {
    ShapeWith({{"sliding_window", 8}});
  });
  testing::ExpectError(ErrorCode::kModelInconsistent, "\"num_attention_heads\" 3", [] {
    ShapeWith({{"num_attention_heads", 3}});
  });
  testing::ExpectError(ErrorCode::kModelInconsistent, "0 of a head's 16 elements", [] {
    ShapeWith({{"rotary_pct", 0.0}});
  });
}

// The MLP's input is normed before the attention's result is added to the states.
TEST(GptNeoxTest, ParallelAttentionAndMlpAreOneLayer) {
  const Model model = MakeModel(ShapeWith(json::object()));
  ASSERT_EQ(model.layers.size(), 4U);
  const LayerSpec& layer = model.layers[1];
  EXPECT_EQ(layer.part, ComputePart::kAttention);
  EXPECT_EQ(layer.decoder_layer, 0);
  int64_t num_norms = 0;
  for (const Op& op : layer.ops) {
    if (std::holds_alternative<Norm>(op)) ++num_norms;
    const auto* linear = std::get_if<Linear>(&op);
    if (linear != nullptr && linear->y.buf == Buf::kHidden) {
      EXPECT_EQ(num_norms, 2) << "both read the states before they change";
    }
  }
  EXPECT_EQ(MakeModel(ShapeWith({{"use_parallel_residual", false}})).layers.size(), 6U);
}

TEST(GptNeoxTest, HeadsLieInRunsOfThePublishedMatrix) {
  const Model model = MakeModel(ShapeWith(json::object()));
  for (const auto& [name, first] : {std::pair{"q_proj", 0}, {"k_proj", 16}, {"v_proj", 32}}) {
    for (const char* kind : {".weight", ".bias"}) {
      const std::string full = std::string("layers.0.attention.") + name + kind;
      const TensorSpec* tensor = FindTensor(model.layers[1], full);
      ASSERT_NE(tensor, nullptr) << full;
      const TensorSource expected = {
          std::string("gpt_neox.layers.0.attention.query_key_value") + kind,
          first,
          96,
          false,
          {16, 48}};
      EXPECT_EQ(tensor->sources.front(), expected) << full;
      EXPECT_EQ(tensor->rows, 32);
    }
  }
}

}  // namespace
}  // namespace spillway
