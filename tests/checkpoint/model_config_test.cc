#include "src/checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <ostream>

#include "spillway/error.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::ExpectError;
using testing::TinyConfig;

ModelShape ShapeOf(std::string_view config) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("config.json", config);
  return ReadModelShape(folder.path());
}

// The tiny config with more, or other, keys at its end. A key must not occur twice, so those of
// `more` are renamed.
std::string ConfigWith(const std::string& key, const std::string& value) {
  std::string config = TinyConfig();
  if (const std::size_t at = config.find("\"" + key + "\":"); at != std::string::npos) {
    config.replace(at, key.size() + 2, "\"was_" + key + "\"");
  }
  return config + ",\"" + key + "\":" + value + "}";
}

TEST(ModelConfigTest, DefaultsAreTransformers) {
  const ModelShape shape = ShapeOf(TinyConfig() + "}");
  EXPECT_EQ(shape.family, "opt");
  EXPECT_EQ(shape.num_layers, 2);
  EXPECT_EQ(shape.hidden_size, 8);
  EXPECT_EQ(shape.ffn_size, 32);
  EXPECT_EQ(shape.num_heads, 2);
  EXPECT_EQ(shape.num_kv_heads, 2);
  EXPECT_EQ(shape.head_dim, 4);
  EXPECT_EQ(shape.vocab_size, 16);
  EXPECT_EQ(shape.max_positions, 10);
  EXPECT_EQ(shape.position_offset, 2);
  EXPECT_EQ(shape.embed_size, 8);
  EXPECT_EQ(shape.activation, Activation::kRelu);
  EXPECT_TRUE(shape.pre_norm && shape.final_norm && shape.norm_affine && shape.linear_bias &&
              shape.tied_head);
  EXPECT_EQ(shape.dtype, DType::kF16);
  EXPECT_EQ(shape.bos, 2);
  EXPECT_EQ(shape.eos, std::vector<TokenId>{2});
  EXPECT_EQ(shape.pad, 1);
}

TEST(ModelConfigTest, EverySwitchIsRead) {
  EXPECT_FALSE(ShapeOf(ConfigWith("do_layer_norm_before", "false")).pre_norm);
  EXPECT_FALSE(ShapeOf(ConfigWith("do_layer_norm_before", "false")).final_norm);
  EXPECT_FALSE(ShapeOf(ConfigWith("_remove_final_layer_norm", "true")).final_norm);
  EXPECT_FALSE(ShapeOf(ConfigWith("enable_bias", "false")).linear_bias);
  EXPECT_FALSE(ShapeOf(ConfigWith("layer_norm_elementwise_affine", "false")).norm_affine);
  EXPECT_FALSE(ShapeOf(ConfigWith("tie_word_embeddings", "false")).tied_head);
  EXPECT_TRUE(ShapeOf(ConfigWith("tie_word_embeddings", "null")).tied_head);
  EXPECT_EQ(ShapeOf(ConfigWith("word_embed_proj_dim", "4")).embed_size, 4);
  EXPECT_EQ(ShapeOf(ConfigWith("word_embed_proj_dim", "null")).embed_size, 8);
  EXPECT_EQ(ShapeOf(ConfigWith("activation_function", "\"gelu\"")).activation, Activation::kGelu);
  EXPECT_EQ(ShapeOf(ConfigWith("activation_function", "\"gelu_new\"")).activation,
            Activation::kGeluTanh);
  EXPECT_EQ(ShapeOf(ConfigWith("activation_function", "\"gelu_pytorch_tanh\"")).activation,
            Activation::kGeluTanh);
  EXPECT_EQ(ShapeOf(ConfigWith("activation_function", "\"silu\"")).activation, Activation::kSilu);
  EXPECT_EQ(ShapeOf(ConfigWith("torch_dtype", "\"bfloat16\"")).dtype, DType::kBF16);
  EXPECT_EQ(ShapeOf(ConfigWith("torch_dtype", "\"float32\"")).dtype, DType::kF16);
  EXPECT_EQ(ShapeOf(ConfigWith("dtype", "\"bfloat16\"")).dtype, DType::kBF16);
}

TEST(ModelConfigTest, TypesHaveTorchsOtherNames) {
  EXPECT_EQ(ShapeOf(ConfigWith("dtype", "\"torch.bfloat16\"")).dtype, DType::kBF16);
  for (const char* type : {"torch.float16", "half", "float", "torch.float32", "double", "float64"})
    EXPECT_EQ(ShapeOf(ConfigWith("dtype", "\"" + std::string(type) + "\"")).dtype, DType::kF16);
}

// Forms in which transformers takes config.json.
TEST(ModelConfigTest, PythonsJsonIsTaken) {
  EXPECT_EQ(ShapeOf(ConfigWith("layerdrop", "Infinity")).vocab_size, 16);
  EXPECT_EQ(ShapeOf(ConfigWith("mask", "[-Infinity,NaN]")).vocab_size, 16);
  EXPECT_EQ(ShapeOf(TinyConfig() + ",\"vocab_size\":17}").vocab_size, 17);
  EXPECT_EQ(ShapeOf(ConfigWith("auto_map", "{}")).vocab_size, 16);
}

TEST(ModelConfigTest, NumbersThatAreReadMustBeFinite) {
  ExpectError(ErrorCode::kModelInconsistent, "\"vocab_size\" is inf, but must be",
              [] { ShapeOf(ConfigWith("vocab_size", "Infinity")); });
}

TEST(ModelConfigTest, PositionsWithoutANumberAreTransformersDefault) {
  EXPECT_EQ(ShapeOf(ConfigWith("max_position_embeddings", "null")).max_positions, 2048);
}

TEST(ModelConfigTest, EndOfTextIsANumberOrAListAndGenerationWins) {
  EXPECT_EQ(ShapeOf(ConfigWith("eos_token_id", "[3,4,3]")).eos, (std::vector<TokenId>{3, 4}));
  EXPECT_TRUE(ShapeOf(ConfigWith("eos_token_id", "[]")).eos.empty());
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("config.json", ConfigWith("eos_token_id", "3"));
  EXPECT_EQ(ReadModelShape(folder.path()).eos, std::vector<TokenId>{3});
  folder.Write("generation_config.json", R"({"max_length":20})");
  EXPECT_EQ(ReadModelConfig(folder.path()).generation, nlohmann::json({{"max_length", 20}}));
  EXPECT_EQ(ReadModelShape(folder.path()).eos, std::vector<TokenId>{3});
  folder.Write("generation_config.json", R"({"eos_token_id":[5,6]})");
  EXPECT_EQ(ReadModelShape(folder.path()).eos, (std::vector<TokenId>{5, 6}));
  folder.Write("generation_config.json", R"({"eos_token_id":-1})");
  EXPECT_TRUE(ReadModelShape(folder.path()).eos.empty());
  folder.Write("generation_config.json", "\n");
  EXPECT_EQ(ReadModelShape(folder.path()).eos, std::vector<TokenId>{3});
}

TEST(ModelConfigTest, AttentionOnlyLooksBack) {
  EXPECT_EQ(ShapeOf(ConfigWith("is_causal", "true")).vocab_size, 16);
  ExpectError(ErrorCode::kModelUnsupported, "\"is_causal\" is false, and only true is supported",
              [] { ShapeOf(ConfigWith("is_causal", "false")); });
}

TEST(ModelConfigTest, TokensBeyondTheVocabularyAreNone) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(ShapeOf(ConfigWith("eos_token_id", "[2,16]")).eos, std::vector<TokenId>{2});
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "spillway: warning: config.json: \"eos_token_id\" is 16, and the model's ids end at 15: "
      "it has none\n");
  EXPECT_TRUE(ShapeOf(ConfigWith("eos_token_id", "50256")).eos.empty());
  EXPECT_EQ(ShapeOf(ConfigWith("bos_token_id", "50256")).bos, -1);
  EXPECT_EQ(ShapeOf(ConfigWith("pad_token_id", "50256")).pad, -1);
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("config.json", ConfigWith("eos_token_id", "3"));
  folder.Write("generation_config.json", R"({"eos_token_id":[5,16]})");
  EXPECT_EQ(ReadModelShape(folder.path()).eos, std::vector<TokenId>{5});
}

TEST(ModelConfigTest, TheNameIsTheFolders) {
  const TemporaryFolder parent(MemoryRoot());
  std::filesystem::create_directory(parent.path() / "my-opt");
  parent.Write("my-opt/config.json", TinyConfig() + "}");
  EXPECT_EQ(ReadModelShape(parent.path() / "my-opt").name, "my-opt");
  EXPECT_EQ(ReadModelShape(parent.path() / "my-opt/.").name, "my-opt");
  EXPECT_EQ(ReadModelShape((parent.path() / "my-opt").string() + "//").name, "my-opt");
}

TEST(ModelConfigTest, TheBundledModelIsRead) {
  const ModelShape shape = ReadModelShape(SPILLWAY_SOURCE_DIR "/examples/tales-opt-8m");
  EXPECT_EQ(shape.name, "tales-opt-8m");
  EXPECT_EQ(NumParameters(MakeModel(shape)), 7891968);
}

struct BadConfig {
  const char* name;
  std::string text;
  ErrorCode code;
  const char* message;
};

void PrintTo(const BadConfig& config, std::ostream* out) { *out << config.name; }

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefused) {
  ExpectError(GetParam().code, GetParam().message, [] { ShapeOf(GetParam().text); });
}

std::string Without(const std::string& key) {
  std::string config = TinyConfig() + "}";
  return config.replace(config.find("\"" + key + "\""), key.size() + 2, "\"other\"");
}

constexpr ErrorCode kMalformed = ErrorCode::kModelMalformed;
constexpr ErrorCode kInconsistent = ErrorCode::kModelInconsistent;
constexpr ErrorCode kUnsupported = ErrorCode::kModelUnsupported;

INSTANTIATE_TEST_SUITE_P(
    M12M20, BadConfigTest,
    ::testing::Values(
        BadConfig{"Empty", "", kMalformed, "not valid JSON"},
        BadConfig{"NotJson", "{'model_type': 'opt'}", kMalformed, "not valid JSON"},
        BadConfig{"Array", "[]", kMalformed, "not a JSON object"},
        BadConfig{"Deep", "{\"a\":" + std::string(100'000, '['), kMalformed,
                  "nests deeper than 64"},
        BadConfig{"DeepObjects",
                  ConfigWith("a",
                             [] {
                               std::string text;
                               for (int at = 0; at < 100'000; ++at) text += "{\"a\":";
                               return text;
                             }()),
                  kMalformed, "nests deeper than 64"},
        BadConfig{"BehindNul", TinyConfig() + std::string("}\0x", 3), kMalformed, "NUL byte"},
        BadConfig{"Huge", TinyConfig() + std::string(2 << 20, ' ') + "}", kUnsupported,
                  "at most 1048576"},
        BadConfig{"TypeMissing", Without("model_type"), kInconsistent, "\"model_type\" is missing"},
        BadConfig{"LayersMissing", Without("num_hidden_layers"), kInconsistent,
                  "\"num_hidden_layers\" is missing"},
        BadConfig{"VocabMissing", Without("vocab_size"), kInconsistent,
                  "\"vocab_size\" is missing"},
        BadConfig{"FfnMissing", Without("ffn_dim"), kInconsistent, "\"ffn_dim\" is missing"},
        BadConfig{"LayersText", ConfigWith("num_hidden_layers", "\"12\""), kInconsistent,
                  "\"num_hidden_layers\" is \"12\", but must be an integer from 1 to 4096"},
        BadConfig{"LayersMany", ConfigWith("num_hidden_layers", "1000000000"), kInconsistent,
                  "from 1 to 4096"},
        BadConfig{"LayersNone", ConfigWith("num_hidden_layers", "0"), kInconsistent,
                  "from 1 to 4096"},
        BadConfig{"LayersNegative", ConfigWith("num_hidden_layers", "-1"), kInconsistent, "is -1"},
        BadConfig{"LayersFraction", ConfigWith("num_hidden_layers", "2.0"), kInconsistent,
                  "is 2.0"},
        BadConfig{"LayersTrue", ConfigWith("num_hidden_layers", "true"), kInconsistent, "is true"},
        BadConfig{"LayersList", ConfigWith("num_hidden_layers", "[2]"), kInconsistent, "is array"},
        BadConfig{"Beyond64", ConfigWith("hidden_size", "18446744073709551615"), kInconsistent,
                  "is 18446744073709551615"},
        BadConfig{"Infinite", ConfigWith("hidden_size", "1e999"), kMalformed, "out of range"},
        BadConfig{"HeadsNone", ConfigWith("num_attention_heads", "0"), kInconsistent,
                  "\"num_attention_heads\" is 0"},
        BadConfig{"HeadsOdd", ConfigWith("num_attention_heads", "3"), kInconsistent,
                  "not a multiple"},
        BadConfig{"Bool", ConfigWith("enable_bias", "1"), kInconsistent,
                  "but must be true or false"},
        BadConfig{"Eos", ConfigWith("eos_token_id", "-2"), kInconsistent, "from -1 to "},
        BadConfig{"EosList", ConfigWith("eos_token_id", "[2,\"x\"]"), kInconsistent,
                  "\"eos_token_id\" is \"x\""},
        BadConfig{"Terminal", ConfigWith("eos_token_id", "\"\\u001b[2J\""), kInconsistent,
                  "\\u001b"},
        BadConfig{"Activation", ConfigWith("activation_function", "7"), kInconsistent,
                  "but must be a string"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    M23, BadConfigTest,
    ::testing::Values(BadConfig{"Family", ConfigWith("model_type", "\"mamba\""), kUnsupported,
                                "\"model_type\" is \"mamba\""},
                      BadConfig{
                          "Quantised",
                          ConfigWith("quantization_config", "{\"quant_method\":\"bitsandbytes\"}"),
                          kUnsupported, "\"quantization_config\""},
                      BadConfig{"RemoteCode", ConfigWith("auto_map", "{\"AutoModel\":\"x.Y\"}"),
                                kUnsupported, "\"auto_map\""},
                      BadConfig{"Activation", ConfigWith("activation_function", "\"swish\""),
                                kUnsupported, "is \"swish\""},
                      BadConfig{"DType", ConfigWith("torch_dtype", "\"float8_e4m3fn\""),
                                kUnsupported, "is \"float8_e4m3fn\""}),
    [](const auto& info) { return info.param.name; });

// GPT-2 has keys of its own.
TEST(ModelConfigTest, HeadsThatDoNotDivideAreNamedByTheFamilysKeys) {
  ExpectError(kInconsistent, "\"n_embd\" 8 is not a multiple of \"n_head\" 3", [] {
    ShapeOf(R"({"model_type":"gpt2","n_layer":1,"n_embd":8,"n_head":3,"vocab_size":16,)"
            R"("n_positions":10})");
  });
}

TEST(ModelConfigTest, NoConfigIsMissing) {
  const TemporaryFolder folder(MemoryRoot());
  ExpectError(ErrorCode::kModelMissing, folder.path().string() + ": has no config.json",
              [&] { ReadModelShape(folder.path()); });
  folder.Write("adapter_config.json", "{}");
  ExpectError(ErrorCode::kModelMissing, "is an adapter (adapter_config.json)",
              [&] { ReadModelShape(folder.path()); });
  std::filesystem::create_directory(folder.path() / "config.json");
  ExpectError(ErrorCode::kModelMissing, "not a regular file",
              [&] { ReadModelShape(folder.path()); });
}

}  // namespace
}  // namespace spillway
