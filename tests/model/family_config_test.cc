// config.json of the families of Llama's block, in the forms that transformers 5 and earlier
// versions write.
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
                 {"vocab_size", 32},         {"torch_dtype", "bfloat16"}};
  config.update(more);
  return config;
}

const std::vector<bool> kAll(4, true);

TEST(MistralConfigTest, AWindowIsOfAllLayers) {
  EXPECT_EQ(ShapeOf(Tiny("mistral")).window, 4096);  // what transformers has without the key
  const ModelShape shape = ShapeOf(Tiny("mistral", {{"sliding_window", 128}}));
  EXPECT_EQ(shape.window, 128);
  EXPECT_EQ(shape.windowed, kAll);
  EXPECT_EQ(shape.head_dim, 12);
  EXPECT_EQ(shape.max_positions, 131072);
  EXPECT_FALSE(shape.qkv_bias || shape.head_norm || shape.branch_norm || shape.tied_head);
  EXPECT_TRUE(ShapeOf(Tiny("mistral", {{"sliding_window", nullptr}})).windowed.empty());
  EXPECT_EQ(ShapeOf(Tiny("mistral", {{"sliding_window", nullptr}, {"head_dim", 32}})).head_dim, 32);
}

// A window that no row is longer than is none.
TEST(MistralConfigTest, AWideWindowIsNone) {
  const json config = {{"sliding_window", 128}, {"max_position_embeddings", 128}};
  EXPECT_EQ(ShapeOf(Tiny("mistral", config)).window, 0);
}

TEST(QwenConfigTest, BiasesAndHeadNormsAreTheArchitectures) {
  const ModelShape two = ShapeOf(Tiny("qwen2"));
  EXPECT_TRUE(two.qkv_bias);
  EXPECT_FALSE(two.out_bias || two.mlp_bias || two.head_norm);
  EXPECT_EQ(two.head_dim, 12);
  EXPECT_EQ(two.bos, -1);
  const ModelShape three = ShapeOf(Tiny("qwen3"));
  EXPECT_TRUE(three.head_norm);
  EXPECT_FALSE(three.qkv_bias || three.out_bias);
  EXPECT_EQ(three.head_dim, 128);
  EXPECT_TRUE(ShapeOf(Tiny("qwen3", {{"attention_bias", true}})).out_bias);
}

TEST(QwenConfigTest, WindowsAreOfTheLayersThatAreSaid) {
  const json window = {{"sliding_window", 128}, {"max_window_layers", 3}};
  EXPECT_TRUE(ShapeOf(Tiny("qwen2", window)).windowed.empty());
  for (const char* family : {"qwen2", "qwen3"}) {
    json used = window;
    used["use_sliding_window"] = true;
    EXPECT_EQ(ShapeOf(Tiny(family, used)).windowed, (std::vector<bool>{false, false, false, true}));
    EXPECT_EQ(ShapeOf(Tiny(family, used)).window, 128);
    used["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention"};
    EXPECT_EQ(ShapeOf(Tiny(family, used)).windowed, (std::vector<bool>{true, false, false, false}));
    used["use_sliding_window"] = false;
    ExpectRefusal(Tiny(family, used), ErrorCode::kModelInconsistent, "no \"sliding_window\"");
  }
}

TEST(GemmaConfigTest, EmbeddingsAreScaledInTheCheckpointsType) {
  const double scale = 6.928203230275509;  // sqrt(48)
  EXPECT_EQ(ShapeOf(Tiny("gemma")).embed_scale, 6.9375);
  EXPECT_EQ(ShapeOf(Tiny("gemma", {{"torch_dtype", "float16"}})).embed_scale, 6.9296875);
  EXPECT_NEAR(ShapeOf(Tiny("gemma", {{"torch_dtype", "float32"}})).embed_scale, scale, 1e-6);
  EXPECT_EQ(ShapeOf(Tiny("gemma", {{"dtype", "float16"}})).embed_scale, 6.9296875);
}

TEST(GemmaConfigTest, DefaultsAreTransformers) {
  const ModelShape shape = ShapeOf(Tiny("gemma"));
  EXPECT_EQ(shape.head_dim, 256);
  EXPECT_EQ(shape.norm_offset, 1.0);
  EXPECT_TRUE(shape.tied_head);
  EXPECT_FALSE(shape.branch_norm || shape.head_norm || shape.qkv_bias);
  EXPECT_EQ(shape.activation, Activation::kGeluTanh);
  EXPECT_EQ(shape.bos, 2);
  EXPECT_EQ(shape.eos, std::vector<TokenId>{1});
}

TEST(GemmaConfigTest, GeluIsWrittenForTheTanhForm) {
  EXPECT_EQ(ShapeOf(Tiny("gemma", {{"hidden_act", "gelu"}})).activation, Activation::kGeluTanh);
  const json both = {{"hidden_act", "gelu"}, {"hidden_activation", "gelu_pytorch_tanh"}};
  EXPECT_EQ(ShapeOf(Tiny("gemma", both)).activation, Activation::kGeluTanh);
  const json apart = {{"hidden_act", "gelu"}, {"hidden_activation", "silu"}};
  ExpectRefusal(Tiny("gemma", apart), ErrorCode::kModelInconsistent, "\"hidden_activation\"");
}

TEST(Gemma2ConfigTest, DefaultsAreTransformers) {
  const ModelShape shape = ShapeOf(Tiny("gemma2"));
  EXPECT_TRUE(shape.branch_norm);
  EXPECT_EQ(shape.score_scale, 0.0625);
  EXPECT_EQ(shape.score_cap, 50.0);
  EXPECT_EQ(shape.logit_cap, 30.0);
  EXPECT_EQ(shape.window, 4096);
  EXPECT_EQ(shape.windowed, (std::vector<bool>{true, false, true, false}));
}

TEST(Gemma2ConfigTest, EverySwitchIsRead) {
  EXPECT_EQ(ShapeOf(Tiny("gemma2", {{"query_pre_attn_scalar", 64}})).score_scale, 0.125);
  EXPECT_EQ(ShapeOf(Tiny("gemma2", {{"attn_logit_softcapping", nullptr}})).score_cap, 0.0);
  EXPECT_EQ(ShapeOf(Tiny("gemma2", {{"final_logit_softcapping", nullptr}})).logit_cap, 0.0);
  EXPECT_EQ(ShapeOf(Tiny("gemma2", {{"final_logit_softcapping", 20.0}})).logit_cap, 20.0);
  EXPECT_EQ(ShapeOf(Tiny("gemma2", {{"hidden_activation", "silu"}})).activation, Activation::kSilu);
  ExpectRefusal(Tiny("gemma2", {{"final_logit_softcapping", 0.0}}), ErrorCode::kModelInconsistent,
                "\"final_logit_softcapping\"");
}

json OfEach(double theta, double window_theta) {
  return {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", theta}}},
          {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", window_theta}}}};
}

TEST(Gemma3ConfigTest, LayersOfEachKindHaveTheirPositionsInBothForms) {
  const json older = {{"rope_theta", 2e6},
                      {"rope_local_base_freq", 3e4},
                      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  const RopeScaling linear = {RopeScalingKind::kLinear, 8.0};
  for (const json& more : {older, json{{"rope_parameters", OfEach(2e6, 3e4)}}}) {
    const ModelShape shape = ShapeOf(Tiny("gemma3_text", more));
    EXPECT_EQ(shape.rope, (Rope{2e6, 256, RopePairs::kHalves, linear}));
    EXPECT_EQ(shape.window_rope, (Rope{3e4, 256}));
  }
  const ModelShape shape = ShapeOf(Tiny("gemma3_text"));
  EXPECT_EQ(shape.rope, (Rope{1e6, 256}));
  EXPECT_EQ(shape.window_rope, (Rope{1e4, 256}));
}

// As in transformers, which puts the older scaling's keys over the newer ones.
TEST(Gemma3ConfigTest, AnOlderScalingCountsBesideNewerPositions) {
  json both = {{"rope_parameters", OfEach(2e6, 3e4)},
               {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}};
  const ModelShape shape = ShapeOf(Tiny("gemma3_text", both));
  EXPECT_EQ(shape.rope,
            (Rope{2e6, 256, RopePairs::kHalves, RopeScaling{RopeScalingKind::kLinear, 4.0}}));
  EXPECT_EQ(shape.window_rope, (Rope{3e4, 256}));
  both["rope_scaling"] = "linear";
  ExpectRefusal(Tiny("gemma3_text", both), ErrorCode::kModelInconsistent, "\"rope_scaling\"");
}

TEST(Gemma3ConfigTest, ThePatternIsSixLayersLong) {
  const json long_one = {{"num_hidden_layers", 8}, {"sliding_window", 512}};
  EXPECT_EQ(ShapeOf(Tiny("gemma3_text", long_one)).windowed,
            (std::vector<bool>{true, true, true, true, true, false, true, true}));
  EXPECT_EQ(ShapeOf(Tiny("gemma3_text", {{"sliding_window_pattern", 2}})).windowed,
            (std::vector<bool>{true, false, true, false}));
  const ModelShape shape = ShapeOf(Tiny("gemma3_text"));
  EXPECT_TRUE(shape.head_norm && shape.branch_norm);
  EXPECT_EQ(shape.logit_cap, 0.0);
}

TEST(OlmoConfigTest, NormsAreBehindThePartsAndOfAllHeadsTogether) {
  for (const char* family : {"olmo2", "olmo3"}) {
    const ModelShape shape = ShapeOf(Tiny(family));
    EXPECT_FALSE(shape.pre_norm || shape.head_norm || shape.qkv_bias || shape.tied_head);
    EXPECT_TRUE(shape.branch_norm && shape.joint_head_norm && shape.final_norm);
    EXPECT_EQ(shape.norm_epsilon, 1e-5);
    EXPECT_EQ(shape.max_positions, 2048);
    EXPECT_EQ(shape.eos, std::vector<TokenId>{});  // 50279 is none of so few tokens
    EXPECT_TRUE(ShapeOf(Tiny(family, {{"attention_bias", true}})).out_bias);
  }
  EXPECT_EQ(ShapeOf(Tiny("olmo2")).rope.theta, 1e4);
  EXPECT_TRUE(ShapeOf(Tiny("olmo2")).windowed.empty());
}

TEST(OlmoConfigTest, AScalingIsOfLayersWithoutAWindow) {
  const json yarn = {{"rope_type", "yarn"},
                     {"factor", 8.0},
                     {"original_max_position_embeddings", 8192},
                     {"attention_factor", 1.2}};
  const json config = {{"rope_theta", 5e5},
                       {"rope_scaling", yarn},
                       {"sliding_window", 96},
                       {"max_position_embeddings", 65536}};
  const ModelShape shape = ShapeOf(Tiny("olmo3", config));
  EXPECT_EQ(shape.windowed, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(shape.window, 96);
  EXPECT_EQ(shape.rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(shape.rope.theta, 5e5);
  EXPECT_EQ(shape.window_rope->scaling.kind, RopeScalingKind::kNone);
  EXPECT_EQ(shape.window_rope->theta, 5e5);
  EXPECT_EQ(shape.max_positions, 65536);
  const json types = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 2e5}}}};
  const ModelShape one = ShapeOf(Tiny("olmo3", {{"rope_parameters", types}}));
  EXPECT_EQ(one.rope.theta, 2e5);
  EXPECT_EQ(one.window_rope->theta, 5e5);
  ExpectRefusal(Tiny("olmo3", {{"rope_theta", 2e5}}), ErrorCode::kModelUnsupported,
                "\"rope_theta\" is not 500000");
  const ModelShape usual = ShapeOf(Tiny("olmo3"));
  EXPECT_EQ(usual.rope.theta, 5e5);
  EXPECT_EQ(usual.window_rope->theta, 5e5);
}

TEST(SmolLm3ConfigTest, EveryFourthLayerKnowsNoPositions) {
  const std::vector<bool> fourth = {false, false, false, true};
  const ModelShape shape = ShapeOf(Tiny("smollm3"));
  EXPECT_EQ(shape.unturned, fourth);
  EXPECT_EQ(shape.rope.theta, 2e6);
  EXPECT_TRUE(shape.tied_head);
  EXPECT_TRUE(shape.windowed.empty());
  EXPECT_EQ(ShapeOf(Tiny("smollm3", {{"no_rope_layer_interval", 2}})).unturned,
            (std::vector<bool>{false, true, false, true}));
  // The list goes before the interval, and on behind the last layer.
  const json listed = {{"no_rope_layers", {0, 1, 1, 1, 0}}, {"no_rope_layer_interval", 2}};
  EXPECT_EQ(ShapeOf(Tiny("smollm3", listed)).unturned,
            (std::vector<bool>{true, false, false, false}));
  ExpectRefusal(Tiny("smollm3", {{"no_rope_layers", {1, 1}}}), ErrorCode::kModelInconsistent,
                "\"no_rope_layers\" has 2 entries for 4 layers");
}

TEST(SmolLm3ConfigTest, LayersWithoutPositionsHaveTheWindow) {
  json config = {{"use_sliding_window", true}, {"sliding_window", 96}};
  const ModelShape shape = ShapeOf(Tiny("smollm3", config));
  EXPECT_EQ(shape.windowed, shape.unturned);
  EXPECT_EQ(shape.window, 96);
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention"};
  EXPECT_EQ(ShapeOf(Tiny("smollm3", config)).windowed,
            (std::vector<bool>{true, false, false, false}));
  config["use_sliding_window"] = false;
  ExpectRefusal(Tiny("smollm3", config), ErrorCode::kModelUnsupported, "\"use_sliding_window\"");
  config["sliding_window"] = nullptr;
  EXPECT_TRUE(ShapeOf(Tiny("smollm3", config)).windowed.empty());
}

TEST(GlmConfigTest, HalfOfAHeadTurnsByNeighbours) {
  for (const char* family : {"glm", "glm4"}) {
    const ModelShape shape = ShapeOf(Tiny(family));
    EXPECT_EQ(shape.head_dim, 128);
    EXPECT_EQ(shape.rope.dims, 64);
    EXPECT_EQ(shape.rope.pairs, RopePairs::kNeighbours);
    EXPECT_EQ(shape.norm_epsilon, 1.5625e-7);
    EXPECT_TRUE(shape.pre_norm && shape.qkv_bias);
    EXPECT_FALSE(shape.out_bias);
    EXPECT_EQ(shape.branch_norm, std::string_view(family) == "glm4");
    EXPECT_EQ(ShapeOf(Tiny(family, {{"partial_rotary_factor", 1.0}})).rope.dims, 128);
    EXPECT_FALSE(ShapeOf(Tiny(family, {{"attention_bias", false}})).qkv_bias);
    json few = Tiny(family);
    few.erase("num_key_value_heads");
    EXPECT_EQ(ShapeOf(few).num_kv_heads, 2);
  }
}

TEST(Exaone4ConfigTest, LayersWithoutAWindowKnowNoPositionsWhereThereIsOne) {
  json config = {{"sliding_window", 96}};
  ModelShape shape = ShapeOf(Tiny("exaone4", config));
  EXPECT_FALSE(shape.pre_norm || shape.joint_head_norm);
  EXPECT_TRUE(shape.branch_norm && shape.head_norm);
  EXPECT_EQ(shape.windowed, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(shape.unturned, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(shape.window, 96);
  config["sliding_window_pattern"] = "LLLG";  // as published, beside "layer_types"
  ExpectRefusal(Tiny("exaone4", config), ErrorCode::kModelInconsistent, "\"layer_types\"");
  config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention",
                           "full_attention"};
  shape = ShapeOf(Tiny("exaone4", config));
  EXPECT_EQ(shape.unturned, (std::vector<bool>{false, true, false, true}));
  const ModelShape whole = ShapeOf(Tiny("exaone4", {{"sliding_window", nullptr}}));
  EXPECT_TRUE(whole.windowed.empty() && whole.unturned.empty());
}

TEST(SeedOssConfigTest, BiasesAreThoseOfQueriesKeysAndValues) {
  const ModelShape shape = ShapeOf(Tiny("seed_oss"));
  EXPECT_TRUE(shape.qkv_bias);
  EXPECT_FALSE(shape.out_bias || shape.mlp_bias);
  EXPECT_EQ(shape.head_dim, 128);
  EXPECT_TRUE(ShapeOf(Tiny("seed_oss", {{"attention_out_bias", true}})).out_bias);
}

// Everything divided by the factor of what is added to the states.
TEST(GraniteConfigTest, FactorsAreThoseOfEmbeddingsScoresNormsAndLogits) {
  const ModelShape plain = ShapeOf(Tiny("granite"));
  EXPECT_EQ(plain.embed_scale, 1.0);
  EXPECT_EQ(plain.score_scale, 1.0);  // of transformers, not of the heads
  EXPECT_EQ(plain.logit_scale, 1.0);
  EXPECT_EQ(plain.norm_epsilon, 1e-6);
  const json factors = {{"embedding_multiplier", 12},
                        {"residual_multiplier", 0.25},
                        {"attention_multiplier", 0.0078125},
                        {"logits_scaling", 16.0},
                        {"rms_norm_eps", 1e-5}};
  const ModelShape shape = ShapeOf(Tiny("granite", factors));
  EXPECT_EQ(shape.embed_scale, 48.0);
  EXPECT_EQ(shape.score_scale, 0.0078125);
  EXPECT_EQ(shape.logit_scale, 0.0625);
  EXPECT_DOUBLE_EQ(shape.norm_epsilon, 1.6e-4);
  for (const char* key : {"residual_multiplier", "logits_scaling", "attention_multiplier"}) {
    ExpectRefusal(Tiny("granite", {{key, 0.0}}), ErrorCode::kModelInconsistent, key);
  }
}

TEST(GraniteConfigTest, ExpertsAreAsWideAsTheirMlp) {
  const ModelShape shape = ShapeOf(
      Tiny("granitemoe",
           {{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"residual_multiplier", 0.5}}));
  EXPECT_EQ(shape.experts.num, 4);
  EXPECT_EQ(shape.experts.top_k, 2);
  EXPECT_EQ(shape.experts.ffn_size, 24);
  EXPECT_TRUE(shape.experts.renormalise);
  EXPECT_EQ(shape.embed_scale, 2.0);
}

// As published, with the keys of layers that they do not have.
TEST(GraniteConfigTest, FourIsReadWhereAllLayersAttend) {
  const json types = json::array({"attention", "attention", "full_attention", "attention"});
  const auto four = [&](json more) {
    json config = {{"num_local_experts", 0},         {"num_experts_per_tok", 0},
                   {"layer_types", types},           {"position_embedding_type", "rope"},
                   {"shared_intermediate_size", 32}, {"normalization_function", "rmsnorm"},
                   {"init_method", "mup"},           {"mamba_d_head", 64},
                   {"mamba_conv_bias", true},        {"mamba_n_heads", 48},
                   {"router_aux_loss_coef", 0.01}};
    config.update(more);
    return Tiny("granitemoehybrid", config);
  };
  const ModelShape shape = ShapeOf(four(json::object()));
  EXPECT_EQ(shape.ffn_size, 32);
  EXPECT_EQ(shape.experts.num, 0);
  EXPECT_TRUE(shape.unturned.empty());
  EXPECT_EQ(ShapeOf(four({{"position_embedding_type", nullptr}})).unturned, kAll);
  EXPECT_EQ(ShapeOf(four({{"position_embedding_type", "nope"}})).unturned, kAll);
  const ErrorCode kUnsupported = ErrorCode::kModelUnsupported;
  ExpectRefusal(four({{"position_embedding_type", "alibi"}}), kUnsupported, "alibi");
  ExpectRefusal(four({{"num_local_experts", 8}}), kUnsupported, "num_local_experts");
  ExpectRefusal(four({{"num_local_experts", nullptr}}), kUnsupported, "num_local_experts");
  ExpectRefusal(four({{"normalization_function", "layernorm"}}), kUnsupported, "normalization");
  ExpectRefusal(four({{"layer_types", nullptr}}), kUnsupported, "Mamba");
  ExpectRefusal(four({{"layer_types", {"attention", "mamba", "attention", "attention"}}}),
                kUnsupported, "mamba");
  ExpectRefusal(four({{"layer_types", {"attention"}}}), ErrorCode::kModelInconsistent,
                "1 entries for 4 layers");
}

TEST(FamilyConfigTest, WhatWouldChangeTheAnswerIsRefusedByName) {
  const ErrorCode kUnsupported = ErrorCode::kModelUnsupported;
  const ErrorCode kInconsistent = ErrorCode::kModelInconsistent;
  ExpectRefusal(Tiny("mistral", {{"layer_types", {"full_attention"}}}), kUnsupported,
                "\"layer_types\" is not known here");
  ExpectRefusal(Tiny("mistral", {{"sliding_window", 1}}), kInconsistent, "\"sliding_window\" is 1");
  ExpectRefusal(Tiny("qwen2", {{"attention_bias", true}}), kUnsupported, "\"attention_bias\"");
  ExpectRefusal(Tiny("qwen2", {{"layer_types", {"full_attention"}}}), kInconsistent,
                "\"layer_types\" has 1 entries for 4 layers");
  ExpectRefusal(Tiny("qwen3", {{"layer_types", {"linear_attention"}}}), kUnsupported,
                "\"layer_types\" has \"linear_attention\"");
  ExpectRefusal(Tiny("qwen3", {{"num_key_value_heads", 3}}), kInconsistent, "not a multiple");
  ExpectRefusal(Tiny("gemma", {{"use_bidirectional_attention", true}}), kUnsupported,
                "\"use_bidirectional_attention\" is true");
  ExpectRefusal(Tiny("gemma3_text", {{"attn_logit_softcapping", 50.0}}), kUnsupported,
                "\"attn_logit_softcapping\"");
  ExpectRefusal(Tiny("gemma2", {{"sliding_window", nullptr}}), kInconsistent,
                "no \"sliding_window\"");
  json flat = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  ExpectRefusal(Tiny("gemma3_text", flat), kInconsistent, "\"full_attention\" is missing");
}

// General keys of transformers before 5, which change nothing here.
TEST(FamilyConfigTest, GeneralKeysAreIgnored) {
  const json general = {{"temperature", 1.0},
                        {"top_k", 50},
                        {"id2label", {{"0", "LABEL_0"}}},
                        {"num_beams", 1},
                        {"tie_encoder_decoder", false},
                        {"_flash_attn_2_enabled", true},
                        {"cache_implementation", nullptr}};
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"})
    EXPECT_EQ(ShapeOf(Tiny(family, general)).num_layers, 4);
}

json Whole(const char* model_type, const json& text, const json& more = json::object()) {
  json config = {{"model_type", model_type}, {"text_config", text}, {"vision_config", {{"a", 1}}}};
  config.update(more);
  return config;
}

TEST(TextConfigTest, SizesThatAreLeftOutAreTheFamilys) {
  const ModelShape shape =
      ShapeOf(Whole("gemma3",
                    {{"hidden_size", 2560},
                     {"intermediate_size", 10240},
                     {"num_hidden_layers", 34},
                     {"model_type", "gemma3_text"},
                     {"sliding_window", 1024}},
                    {{"torch_dtype", "bfloat16"}, {"eos_token_id", {1, 106}}}));
  EXPECT_EQ(shape.family, "gemma3_text");
  EXPECT_EQ(shape.num_heads, 8);
  EXPECT_EQ(shape.num_kv_heads, 4);
  EXPECT_EQ(shape.vocab_size, 262208);
  EXPECT_TRUE(shape.tied_head);
  EXPECT_EQ(shape.dtype, DType::kBF16);
  EXPECT_EQ(shape.embed_scale, 50.5);
  EXPECT_EQ(shape.eos, (std::vector<TokenId>{1, 106}));
  EXPECT_EQ(ShapeOf(Whole("llava", {{"vocab_size", 32064}})).hidden_size, 4096);
  EXPECT_EQ(ShapeOf(Whole("llava_onevision", json::object())).family, "qwen2");
}

TEST(TextConfigTest, TheHeadIsTiedWhereEitherSaysSo) {
  const json tied = {{"tie_word_embeddings", true}};
  EXPECT_FALSE(ShapeOf(Whole("mistral3", json::object())).tied_head);
  EXPECT_TRUE(ShapeOf(Whole("mistral3", tied)).tied_head);
  EXPECT_TRUE(ShapeOf(Whole("mistral3", json::object(), tied)).tied_head);
  EXPECT_FALSE(
      ShapeOf(Whole("gemma3", json::object(), {{"tie_word_embeddings", false}})).tied_head);
}

TEST(TextConfigTest, WhatIsNoTextPartIsRefused) {
  ExpectRefusal({{"model_type", "gemma3"}}, ErrorCode::kModelInconsistent, "\"text_config\"");
  ExpectRefusal(Whole("gemma3", "text"), ErrorCode::kModelInconsistent, "\"text_config\"");
  ExpectRefusal(Whole("llava", {{"model_type", "opt"}}), ErrorCode::kModelUnsupported,
                "\"text_config\" is of the type \"opt\"");
  ExpectRefusal(Whole("mistral3", {{"strange", 7}}), ErrorCode::kModelUnsupported, "\"strange\"");
  ExpectRefusal(Whole("paligemma", json::object()), ErrorCode::kModelUnsupported, "\"model_type\"");
}

// A store says of itself what config.json said.
TEST(FamilyConfigTest, StoresKeepEveryField) {
  const json ropes = {{"rope_parameters", OfEach(2e6, 3e4)},
                      {"final_logit_softcapping", 20.0},
                      {"query_pre_attn_scalar", 168}};
  for (const json& config :
       {Tiny("mistral"), Tiny("qwen2"), Tiny("qwen3"), Tiny("gemma"), Tiny("gemma2"),
        Tiny("gemma3_text", ropes), Tiny("olmo2"), Tiny("olmo3"), Tiny("smollm3"), Tiny("glm4"),
        Tiny("exaone4"), Tiny("seed_oss"), Tiny("granite", {{"logits_scaling", 8.0}})}) {
    SCOPED_TRACE(config.dump());
    const ModelShape shape = ShapeOf(config);
    const json written = ShapeToJson(shape);
    const ModelShape read = ShapeFromJson(written, "store");
    EXPECT_EQ(ShapeToJson(read), written);
    EXPECT_EQ(read.windowed, shape.windowed);
    EXPECT_EQ(read.window_rope, shape.window_rope);
    EXPECT_EQ(read.score_scale, shape.score_scale);
    EXPECT_EQ(read.embed_scale, shape.embed_scale);
    EXPECT_EQ(read.logit_cap, shape.logit_cap);
    EXPECT_EQ(read.head_norm, shape.head_norm);
    EXPECT_EQ(read.branch_norm, shape.branch_norm);
    EXPECT_EQ(read.joint_head_norm, shape.joint_head_norm);
    EXPECT_EQ(read.pre_norm, shape.pre_norm);
    EXPECT_EQ(read.unturned, shape.unturned);
    EXPECT_EQ(read.logit_scale, shape.logit_scale);
  }
}

TEST(FamilyConfigTest, AStoresLayersAreAllSaid) {
  json written = ShapeToJson(ShapeOf(Tiny("gemma2")));
  written["block"]["windowed"].erase(0);
  ExpectError(ErrorCode::kModelInconsistent, "\"windowed\"",
              [&] { ShapeFromJson(written, "store"); });
  written = ShapeToJson(ShapeOf(Tiny("smollm3")));
  written["block"]["unturned"].erase(0);
  ExpectError(ErrorCode::kModelInconsistent, "\"unturned\"",
              [&] { ShapeFromJson(written, "store"); });
}

}  // namespace
}  // namespace spillway
