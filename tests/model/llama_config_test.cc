#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "spillway/error.h"
#include "tests/expect_error.h"
#include "tests/model/config_shape.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ExpectError;

// config.json of a small Llama, as transformers wrote it before 5.
json TinyLlama() {
  return {{"model_type", "llama"},     {"hidden_size", 16},        {"intermediate_size", 24},
          {"num_hidden_layers", 2},    {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 32},          {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 64},
          {"torch_dtype", "bfloat16"}, {"use_cache", true}};
}

ModelShape ShapeWith(const json& more) {
  json config = TinyLlama();
  config.update(more);
  return testing::ShapeOf(config);
}

TEST(LlamaConfigTest, DefaultsAreTransformers) {
  const ModelShape shape = ShapeWith(json::object());
  EXPECT_EQ(shape.family, "llama");
  EXPECT_EQ(shape.num_kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 4);
  EXPECT_EQ(shape.ffn_size, 24);
  EXPECT_EQ(shape.activation, Activation::kSilu);
  EXPECT_EQ(shape.norm, NormKind::kRms);
  EXPECT_TRUE(shape.gated_mlp);
  EXPECT_FALSE(shape.tied_head || shape.qkv_bias || shape.out_bias || shape.mlp_bias);
  EXPECT_EQ(shape.rope, (Rope{10000.0, 4}));
  EXPECT_EQ(shape.bos, 1);
  EXPECT_EQ(shape.eos, std::vector<TokenId>{2});
}

TEST(LlamaConfigTest, EverySwitchIsRead) {
  EXPECT_EQ(ShapeWith({{"head_dim", 6}}).head_dim, 6);
  EXPECT_EQ(ShapeWith({{"num_key_value_heads", nullptr}}).num_kv_heads, 4);
  EXPECT_TRUE(ShapeWith({{"tie_word_embeddings", true}}).tied_head);
  EXPECT_TRUE(ShapeWith({{"attention_bias", true}}).qkv_bias);
  EXPECT_TRUE(ShapeWith({{"attention_bias", true}}).out_bias);
  EXPECT_TRUE(ShapeWith({{"mlp_bias", true}}).mlp_bias);
  EXPECT_EQ(ShapeWith({{"rope_theta", 500000.0}}).rope.theta, 500000.0);
}

TEST(LlamaConfigTest, RotaryPositionsAreReadInBothForms) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 32.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  const RopeScaling expected = {RopeScalingKind::kLlama3, 32.0, 1.0, 4.0, 8192};
  EXPECT_EQ(ShapeWith({{"rope_scaling", scaling}}).rope.scaling, expected);
  json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const Rope rope = ShapeWith({{"rope_parameters", parameters}}).rope;
  EXPECT_EQ(rope.scaling, expected);
  EXPECT_EQ(rope.theta, 500000.0);
  const json linear = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(ShapeWith({{"rope_scaling", linear}}).rope.scaling,
            (RopeScaling{RopeScalingKind::kLinear, 2.0}));
  EXPECT_EQ(ShapeWith({{"rope_scaling", {{"rope_type", "default"}}}}).rope.scaling, RopeScaling{});
}

TEST(LlamaConfigTest, YarnIsRead) {
  json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}};
  const ModelShape shape = ShapeWith({{"rope_scaling", yarn}});
  const RopeScaling& scaling = shape.rope.scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(scaling.original_positions, 32);
  EXPECT_TRUE(scaling.whole_pairs);
  EXPECT_DOUBLE_EQ(scaling.attention_factor, 1.138629436111989);
  EXPECT_EQ(shape.max_positions, 128) << "4 times those of training";
  const auto factor_with = [&](const json& more) {
    json settings = yarn;
    settings.update(more);
    return ShapeWith({{"rope_scaling", settings}}).rope.scaling.attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor_with({{"factor", 40.0}, {"mscale", 1.0}, {"mscale_all_dim", 0.8}}),
                   1.0569662567531275);
  EXPECT_DOUBLE_EQ(factor_with({{"mscale", 1.0}}), 1.138629436111989) << "of the two";
  EXPECT_EQ(factor_with({{"attention_factor", 1.25}}), 1.25);
  yarn.update({{"factor", nullptr}, {"truncate", false}, {"beta_fast", 8}, {"beta_slow", 2}});
  const RopeScaling other = ShapeWith({{"rope_parameters", yarn}}).rope.scaling;
  EXPECT_EQ(other.factor, 2.0) << "64 positions in place of 32";
  EXPECT_FALSE(other.whole_pairs);
  EXPECT_EQ(other.fast_turns, 8.0);
  EXPECT_EQ(other.slow_turns, 2.0);
  EXPECT_EQ(ShapeWith({{"original_max_position_embeddings", 16}, {"rope_scaling", yarn}})
                .rope.scaling.original_positions,
            16);
}

TEST(LlamaConfigTest, ScalingsByLengthAreRead) {
  const ModelShape dynamic = ShapeWith({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.5}}}});
  EXPECT_EQ(dynamic.rope.scaling.kind, RopeScalingKind::kDynamic);
  EXPECT_EQ(dynamic.rope.scaling.original_positions, 64);
  EXPECT_EQ(dynamic.max_positions, 160);
  const json lists = {{"rope_type", "longrope"},
                      {"short_factor", {1.0, 1}},
                      {"long_factor", {2.0, 4.5}},
                      {"original_max_position_embeddings", 16}};
  const ModelShape shape = ShapeWith({{"rope_parameters", lists}});
  EXPECT_EQ(shape.rope.scaling.kind, RopeScalingKind::kLong);
  EXPECT_EQ(shape.rope.scaling.long_factors, (std::vector{2.0, 4.5}));
  EXPECT_DOUBLE_EQ(shape.rope.scaling.attention_factor, std::sqrt(1.5)) << "ln 4 / ln 16";
  EXPECT_EQ(shape.max_positions, 64);
}

TEST(LlamaConfigTest, AnOlderScalingStandsForAllOfTheNewer) {
  const json plain = {{"rope_type", "default"}, {"rope_theta", 700.0}};
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  ModelShape shape =
      ShapeWith({{"rope_theta", 700.0}, {"rope_parameters", plain}, {"rope_scaling", yarn}});
  EXPECT_EQ(shape.rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(shape.rope.theta, 700.0);
  json with_theta = yarn;
  with_theta["rope_theta"] = 700.0;
  shape = ShapeWith({{"rope_parameters", plain}, {"rope_scaling", with_theta}});
  EXPECT_EQ(shape.rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(shape.rope.theta, 700.0);
  EXPECT_EQ(ShapeWith({{"rope_parameters", plain}, {"rope_scaling", json::object()}}).rope.theta,
            700.0);
  ExpectError(ErrorCode::kModelUnsupported, "another \"rope_theta\"", [&] {
    ShapeWith({{"rope_parameters", plain}, {"rope_scaling", yarn}});
  });
}

TEST(LlamaConfigTest, APartOfAHeadMayTurn) {
  EXPECT_EQ(ShapeWith({{"partial_rotary_factor", 0.5}}).rope.dims, 2);
  EXPECT_EQ(ShapeWith({{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}).rope.dims, 2);
  ExpectError(ErrorCode::kModelInconsistent, "1 of a head's 4 elements", [] {
    ShapeWith({{"partial_rotary_factor", 0.25}});
  });
}

TEST(LlamaConfigTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  const auto expect_refusal = [](const json& more, ErrorCode code, const std::string& text) {
    SCOPED_TRACE(more.dump());
    ExpectError(code, text, [&] { ShapeWith(more); });
  };
  const ErrorCode kUnsupported = ErrorCode::kModelUnsupported;
  const ErrorCode kInconsistent = ErrorCode::kModelInconsistent;
  expect_refusal({{"sliding_window", 128}}, kUnsupported, "\"sliding_window\" is not known here");
  expect_refusal({{"rope_interleaved", true}}, kUnsupported, "\"rope_interleaved\"");
  expect_refusal({{"hidden_act", "relu2"}}, kUnsupported, "\"hidden_act\" is \"relu2\"");
  expect_refusal({{"rope_scaling", {{"rope_type", "ntk"}, {"factor", 2.0}}}}, kUnsupported,
                 "\"rope_type\" is \"ntk\"");
  expect_refusal({{"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {1, 1}}}}},
                 kUnsupported, "\"mrope_section\" is not known here");
  const json one = {{"rope_type", "longrope"},
                    {"short_factor", {1.0}},
                    {"long_factor", {1.0, 1.0}},
                    {"original_max_position_embeddings", 16}};
  expect_refusal({{"rope_scaling", one}}, kInconsistent,
                 "\"short_factor\" has 1 numbers, but 2 pairs");
  json without = one;
  without.erase("original_max_position_embeddings");
  expect_refusal({{"rope_scaling", without}}, kInconsistent, "original_max_position_embeddings");
  expect_refusal({{"rope_scaling", {{"rope_type", "dynamic"}}}}, kInconsistent, "factor");
  expect_refusal({{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}}}, kInconsistent,
                 "low_freq_factor");
  expect_refusal({{"num_key_value_heads", 3}}, kInconsistent, "num_key_value_heads");
  expect_refusal({{"head_dim", 5}}, kInconsistent, "\"head_dim\" is odd");
  expect_refusal({{"num_attention_heads", 3}}, kInconsistent, "not a multiple");
}

TEST(LlamaConfigTest, KeysThatChangeNothingAreIgnored) {
  EXPECT_EQ(ShapeWith({{"sliding_window", nullptr},
                       {"use_sliding_window", false},
                       {"initializer_range", 0.02},
                       {"pretraining_tp", 1},
                       {"architectures", {"LlamaForCausalLM"}}})
                .num_layers,
            2);
}

}  // namespace
}  // namespace spillway
