// config.json of the families with experts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "src/store/shape_json.h"
#include "tests/expect_error.h"
#include "tests/model/config_shape.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ExpectError;
using testing::ExpectRefusal;
using testing::ShapeOf;

json Tiny(const char* model_type, const json& more = json::object()) {
  json config = {{"model_type", model_type}, {"hidden_size", 48},        {"intermediate_size", 24},
                 {"num_hidden_layers", 4},   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"vocab_size", 32},         {"num_experts_per_tok", 2}};
  if (config["model_type"] == "mixtral") {
    config["num_local_experts"] = 8;
  } else {
    config.update({{"num_experts", 8}, {"moe_intermediate_size", 16}});
  }
  if (config["model_type"] == "qwen2_moe") config["shared_expert_intermediate_size"] = 40;
  config.update(more);
  return config;
}

constexpr std::array kFamilies = {"mixtral", "qwen2_moe", "qwen3_moe"};

TEST(ExpertConfigTest, DefaultsAreTransformers) {
  const ModelShape mixtral = ShapeOf(Tiny("mixtral"));
  EXPECT_EQ(mixtral.experts, (ExpertShape{.num = 8, .top_k = 2, .ffn_size = 24}));
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5);
  EXPECT_EQ(mixtral.window, 0);
  const ModelShape two = ShapeOf(Tiny("qwen2_moe"));
  EXPECT_EQ(
      two.experts,
      (ExpertShape{.num = 8, .top_k = 2, .ffn_size = 16, .shared_ffn = 40, .renormalise = false}));
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_FALSE(two.head_norm || two.out_bias);
  const ModelShape three = ShapeOf(Tiny("qwen3_moe"));
  EXPECT_TRUE(three.head_norm);
  EXPECT_EQ(three.head_dim, 12);
  EXPECT_FALSE(three.qkv_bias || three.experts.renormalise);
}

json TinyGptOss(const json& more = json::object()) {
  json config = Tiny("gpt_oss", {{"max_position_embeddings", 131072}});
  config.update(more);
  config.erase("moe_intermediate_size");
  return config;
}

TEST(ExpertConfigTest, DefaultsOfGptOssAreTransformers) {
  const ModelShape shape = ShapeOf(TinyGptOss());
  EXPECT_EQ(shape.experts, (ExpertShape{.num = 8, .top_k = 2, .ffn_size = 24, .biased = true}));
  EXPECT_EQ(shape.head_dim, 64);
  EXPECT_EQ(shape.window, 128);
  EXPECT_EQ(shape.windowed, (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(shape.score_sinks && shape.qkv_bias && shape.out_bias);
  EXPECT_EQ(shape.rope.theta, 150000.0);
  const RopeScaling& scaling = shape.rope.scaling;
  EXPECT_EQ(scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(scaling.factor, 32.0);
  EXPECT_FALSE(scaling.whole_pairs);
  const json same = {{"rope_type", "yarn"}, {"factor", 32.0},
                     {"beta_fast", 32.0},   {"beta_slow", 1.0},
                     {"truncate", false},   {"original_max_position_embeddings", 4096}};
  EXPECT_EQ(ShapeOf(TinyGptOss({{"rope_scaling", same}})).rope, shape.rope);
  EXPECT_EQ(ShapeOf(TinyGptOss({{"rope_parameters", same}})).rope, shape.rope);
  EXPECT_FALSE(ShapeOf(TinyGptOss({{"attention_bias", false}})).qkv_bias);
  const json types = {"full_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(ShapeOf(TinyGptOss({{"layer_types", types}})).windowed,
            (std::vector<bool>{false, false, true, false}));
}

TEST(ExpertConfigTest, OtherNumbersOfGptOssAreRefusedByName) {
  EXPECT_NO_THROW(ShapeOf(TinyGptOss({{"swiglu_limit", 7.0}, {"swiglu_alpha", 1.702}})));
  ExpectRefusal(TinyGptOss({{"swiglu_limit", 6.0}}), ErrorCode::kModelUnsupported,
                "\"swiglu_limit\" is 6");
  ExpectRefusal(TinyGptOss({{"swiglu_alpha", 1.5}}), ErrorCode::kModelUnsupported,
                "\"swiglu_alpha\" is 1.5");
  ExpectRefusal(TinyGptOss({{"router_bias", true}}), ErrorCode::kModelUnsupported,
                "\"router_bias\"");
}

TEST(ExpertConfigTest, TransformersFiveHasOneNameForTheirNumber) {
  json config = Tiny("qwen3_moe", {{"num_local_experts", 6}});
  config.erase("num_experts");
  EXPECT_EQ(ShapeOf(config).experts.num, 6);
}

TEST(ExpertConfigTest, LayersMayHaveAnMlpInstead) {
  for (const char* family : {"qwen2_moe", "qwen3_moe"}) {
    const auto dense = [&](const json& more) { return ShapeOf(Tiny(family, more)).experts.dense; };
    EXPECT_TRUE(dense({{"mlp_only_layers", json::array()}}).empty());
    EXPECT_EQ(dense({{"mlp_only_layers", {0, 3}}}), (std::vector<bool>{true, false, false, true}));
    EXPECT_EQ(dense({{"decoder_sparse_step", 2}}), (std::vector<bool>{true, false, true, false}));
    EXPECT_EQ(dense({{"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}}),
              (std::vector<bool>{true, true, true, false}));
  }
}

TEST(ExpertConfigTest, WindowsAreThoseOfTransformers) {
  const json window = {
      {"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 3}};
  EXPECT_EQ(ShapeOf(Tiny("qwen2_moe", window)).windowed,
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(ShapeOf(Tiny("qwen3_moe", window)).windowed, std::vector<bool>(4, true));
  json unused = window;
  unused["use_sliding_window"] = false;
  for (const char* family : {"qwen2_moe", "qwen3_moe"})
    EXPECT_EQ(ShapeOf(Tiny(family, unused)).window, 0);
  EXPECT_EQ(ShapeOf(Tiny("mixtral", {{"sliding_window", 16}})).window, 16);
}

TEST(ExpertConfigTest, NumbersThatDoNotFitAreRefused) {
  constexpr ErrorCode kInconsistent = ErrorCode::kModelInconsistent;
  for (const char* family : kFamilies) {
    ExpectRefusal(Tiny(family, {{"num_experts_per_tok", 9}}), kInconsistent,
                  "\"num_experts_per_tok\" is 9, more than");
    ExpectRefusal(Tiny(family, {{"num_experts_per_tok", 0}}), kInconsistent, "num_experts_per_tok");
    ExpectRefusal(Tiny(family, {{"expert_bias", 1}}), ErrorCode::kModelUnsupported,
                  "\"expert_bias\" is not known here");
  }
  ExpectRefusal(Tiny("qwen3_moe", {{"num_experts", 4096}, {"num_hidden_layers", 4096}}),
                kInconsistent, "at most 131072 are taken");
  ExpectRefusal(Tiny("qwen3_moe", {{"mlp_only_layers", {4}}}), kInconsistent, "mlp_only_layers");
  ExpectRefusal(Tiny("qwen3_moe", {{"decoder_sparse_step", 0}}), kInconsistent,
                "decoder_sparse_step");
  ExpectRefusal(Tiny("qwen3_moe", {{"moe_intermediate_size", nullptr}}), kInconsistent,
                "moe_intermediate_size");
}

TEST(ExpertConfigTest, AStoreKeepsTheShape) {
  for (const char* family : kFamilies) {
    json more = {{"sliding_window", 16}};
    if (std::string(family) != "mixtral") more["mlp_only_layers"] = {1};
    const ModelShape shape = ShapeOf(Tiny(family, more));
    const ModelShape again = ShapeFromJson(ShapeToJson(shape), "x");
    EXPECT_EQ(again.experts, shape.experts);
    EXPECT_EQ(again.windowed, shape.windowed);
  }
}

TEST(ExpertConfigTest, AStoresExpertsAreCheckedAsWell) {
  const json good = ShapeToJson(ShapeOf(Tiny("qwen3_moe", {{"mlp_only_layers", {1}}})));
  const auto with = [&](const char* key, const json& value) {
    json shape = good;
    shape["block"]["experts"][key] = value;
    return shape;
  };
  for (const auto& [key, value, text] : std::vector<std::tuple<const char*, json, const char*>>{
           {"top_k", 9, "top_k"},
           {"num", 0, "num"},
           {"dense", {true}, "not one value for each layer"},
           {"shared_ffn", -1, "shared_ffn"}}) {
    ExpectError(ErrorCode::kModelInconsistent, text,
                [&, &k = key, &v = value] { ShapeFromJson(with(k, v), "x"); });
  }
}

}  // namespace
}  // namespace spillway
