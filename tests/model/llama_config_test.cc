#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "src/checkpoint/model_config.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

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
  const TemporaryFolder folder(MemoryRoot());
  json config = TinyLlama();
  config.update(more);
  folder.Write("config.json", config.dump());
  return ReadModelShape(folder.path());
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
  expect_refusal({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}}}}, kUnsupported,
                 "\"rope_type\" is \"yarn\"");
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
