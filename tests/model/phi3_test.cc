#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/checkpoint/model_config.h"
#include "tests/expect_error.h"
#include "tests/model/config_shape.h"
#include "tests/model_util.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;

// config.json of a small Phi-3, as published ones are.
json TinyPhi3() {
  return {{"model_type", "phi3"},      {"hidden_size", 32},        {"intermediate_size", 48},
          {"num_hidden_layers", 2},    {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"vocab_size", 40},          {"hidden_act", "silu"},     {"max_position_embeddings", 64},
          {"resid_pdrop", 0.0},        {"embd_pdrop", 0.0},        {"attention_bias", false},
          {"sliding_window", nullptr}, {"bos_token_id", 1},        {"eos_token_id", 2},
          {"pad_token_id", 2}};
}

ModelShape ShapeWith(const json& more) {
  json config = TinyPhi3();
  config.update(more);
  return testing::ShapeOf(config);
}

TEST(Phi3Test, DefaultsAreTransformers) {
  const ModelShape shape = ShapeWith(json::object());
  EXPECT_EQ(shape.norm, NormKind::kRms);
  EXPECT_EQ(shape.norm_epsilon, 1e-5);
  EXPECT_TRUE(shape.gated_mlp);
  EXPECT_FALSE(shape.tied_head || shape.qkv_bias || shape.out_bias || shape.mlp_bias);
  EXPECT_EQ(shape.rope, (Rope{10000.0, 8}));
  EXPECT_TRUE(shape.windowed.empty());
  json without = TinyPhi3();
  const TemporaryFolder folder(MemoryRoot());
  without.erase("max_position_embeddings");
  folder.Write("config.json", without.dump());
  EXPECT_EQ(ReadModelShape(folder.path()).max_positions, 4096);
}

// Phi-4-mini's form, and that of the first Phi-3-mini-128k.
TEST(Phi3Test, LongContextsAreRead) {
  const json lists = {
      {"type", "su"}, {"short_factor", {1.0, 1.0, 1.0}}, {"long_factor", {1.0, 2.0, 4.0}}};
  const ModelShape shape = ShapeWith({{"original_max_position_embeddings", 16},
                                      {"partial_rotary_factor", 0.75},
                                      {"rope_scaling", lists}});
  EXPECT_EQ(shape.rope.dims, 6);
  EXPECT_EQ(shape.rope.scaling.kind, RopeScalingKind::kLong);
  EXPECT_EQ(shape.rope.scaling.original_positions, 16);
  EXPECT_EQ(shape.max_positions, 64);
}

TEST(Phi3Test, AWindowThatNoRowExceedsIsNone) {
  const ModelShape windowed = ShapeWith({{"sliding_window", 16}});
  EXPECT_EQ(windowed.window, 16);
  EXPECT_TRUE(IsWindowed(windowed, 1));
  EXPECT_EQ(AttendOf(MakeModel(windowed).layers[1].ops).window, 16);
  EXPECT_EQ(ShapeWith({{"sliding_window", 262144}}).window, 0);
}

TEST(Phi3Test, QueriesKeysValuesGateAndUpAreRowsOfFusedMatrices) {
  const Model model = MakeModel(ShapeWith(json::object()));
  const auto expect_source = [&](std::size_t layer, const std::string& name,
                                 const TensorSource& expected) {
    const TensorSpec* tensor = FindTensor(model.layers[layer], "layers.0." + name + ".weight");
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->sources.front(), expected) << name;
  };
  const std::string qkv = "layers.0.self_attn.qkv_proj.weight";
  expect_source(1, "self_attn.q_proj", {qkv, 0, 64});
  expect_source(1, "self_attn.k_proj", {qkv, 32, 64});
  expect_source(1, "self_attn.v_proj", {qkv, 48, 64});
  expect_source(2, "mlp.gate_proj", {"layers.0.mlp.gate_up_proj.weight", 0, 96});
  expect_source(2, "mlp.up_proj", {"layers.0.mlp.gate_up_proj.weight", 48, 96});
}

TEST(Phi3Test, PublishedCodeOfItsOwnIsNotNeeded) {
  const json published = {{"AutoConfig", "configuration_phi3.Phi3Config"},
                          {"AutoModelForCausalLM", "modeling_phi3.Phi3ForCausalLM"},
                          {"AutoTokenizer", "Xenova/gpt-4o"}};
  EXPECT_EQ(ShapeWith({{"auto_map", published}}).num_layers, 2);
  for (const json& other : {json{{"AutoModelForCausalLM", "modeling_other.OtherForCausalLM"}},
                            json{{"AutoModelForCausalLM", {"modeling_phi3.Phi3Model"}}},
                            json("modeling_phi3.Phi3ForCausalLM")}) {
    testing::ExpectError(ErrorCode::kModelUnsupported, "\"auto_map\"", [&] {
      ShapeWith({{"auto_map", other}});
    });
  }
}

TEST(Phi3Test, WhatWouldChangeTheAnswerIsRefusedByName) {
  const json yarn = {{"type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 16}};
  testing::ExpectError(ErrorCode::kModelUnsupported, "neither default nor longrope", [&] {
    ShapeWith({{"rope_scaling", yarn}});
  });
  testing::ExpectError(ErrorCode::kModelUnsupported, "\"attention_bias\" is not known here", [] {
    ShapeWith({{"attention_bias", true}});
  });
  testing::ExpectError(ErrorCode::kModelInconsistent, "sliding_window", [] {
    ShapeWith({{"sliding_window", 0}});
  });
}

}  // namespace
}  // namespace spillway
