#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "spillway/model.h"
#include "tests/model_util.h"

namespace spillway {
namespace {

constexpr const char* kPositions = "decoder.embed_positions.weight";
constexpr const char* kHead = "lm_head.weight";

struct Count {
  const char* name;
  int64_t num_parameters;
};

class BuiltInShapeTest : public testing::TestWithParam<Count> {};

// Counted by transformers 5.23 from the published config.json files (OPTForCausalLM on the meta
// device).
TEST_P(BuiltInShapeTest, HasThePublishedNumberOfParameters) {
  const std::optional<ModelShape> shape = BuiltInShape(GetParam().name);
  ASSERT_TRUE(shape.has_value());
  EXPECT_EQ(NumParameters(MakeModel(*shape)), GetParam().num_parameters);
  if (shape->rope.dims == 0) {
    EXPECT_EQ(shape->num_heads * shape->head_dim, shape->hidden_size);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Opt, BuiltInShapeTest,
    testing::Values(Count{"opt-125m", 125239296}, Count{"opt-350m", 331196416},
                    Count{"opt-1.3b", 1315758080}, Count{"opt-2.7b", 2651596800},
                    Count{"opt-6.7b", 6658473984}, Count{"opt-13b", 12853473280},
                    Count{"opt-30b", 29974540288}, Count{"opt-66b", 65719701504},
                    Count{"opt-175b", 174604468224}));

// Parameters of GPT2LMHeadModel.
INSTANTIATE_TEST_SUITE_P(Gpt2, BuiltInShapeTest,
                         testing::Values(Count{"gpt2", 124439808}, Count{"gpt2-medium", 354823168},
                                         Count{"gpt2-large", 774030080},
                                         Count{"gpt2-xl", 1557611200}));

// Parameters of GPTNeoXForCausalLM, of transformers 5.24.
INSTANTIATE_TEST_SUITE_P(
    GptNeox, BuiltInShapeTest,
    testing::Values(Count{"pythia-70m", 70426624}, Count{"pythia-160m", 162322944},
                    Count{"pythia-410m", 405334016}, Count{"pythia-1b", 1011781632},
                    Count{"pythia-1.4b", 1414647808}, Count{"pythia-2.8b", 2775208960},
                    Count{"pythia-6.9b", 6857302016}, Count{"pythia-12b", 11846072320},
                    Count{"gpt-neox-20b", 20554567680}));

// Parameters of Phi3ForCausalLM, of transformers 5.24.
INSTANTIATE_TEST_SUITE_P(Phi3, BuiltInShapeTest, testing::Values(Count{"phi-4", 14659507200}));

// Parameters of MistralForCausalLM and the others in transformers 5.24, counted on the meta device.
INSTANTIATE_TEST_SUITE_P(
    LlamaBlock, BuiltInShapeTest,
    testing::Values(Count{"mistral-7b", 7248023552}, Count{"mistral-nemo-12b", 12247782400},
                    Count{"mistral-small-24b", 23572403200}, Count{"qwen2.5-0.5b", 494032768},
                    Count{"qwen2.5-7b", 7615616512}, Count{"qwen2.5-32b", 32763876352},
                    Count{"qwen2.5-72b", 72706203648}, Count{"qwen3-0.6b", 596049920},
                    Count{"qwen3-8b", 8190735360}, Count{"qwen3-32b", 32762123264},
                    Count{"gemma-2b", 2506172416}, Count{"gemma-7b", 8537680896},
                    Count{"gemma-2-2b", 2614341888}, Count{"gemma-2-9b", 9241705984},
                    Count{"gemma-2-27b", 27227128320}, Count{"gemma-3-1b", 999885952},
                    Count{"gemma-3-4b", 3880263168}, Count{"gemma-3-12b", 11766034176},
                    Count{"gemma-3-27b", 27009346304}));

TEST(BuiltInShapeNamesTest, AnyCaseIsTaken) {
  EXPECT_EQ(BuiltInShape("Qwen2.5-7B")->name, "qwen2.5-7b");
  EXPECT_EQ(BuiltInShape("OPT-125m")->family, "opt");
  EXPECT_EQ(BuiltInShape("Gemma-3-27b")->family, "gemma3_text");
}

TEST(BuiltInShapeNamesTest, UnknownNamesAreNone) {
  EXPECT_FALSE(BuiltInShape("opt-7b").has_value());
  EXPECT_FALSE(BuiltInShape("").has_value());
  EXPECT_EQ(BuiltInShapeNames().size(), 79U);
}

TEST(LayersTest, QuantisedAreAllMatricesButThePositions) {
  for (const int bits : {8, 4}) {
    ModelShape shape = *BuiltInShape("opt-350m");
    shape.weight_bits = bits;
    shape.tied_head = false;
    for (const LayerSpec& layer : LayersOf(shape)) {
      for (const TensorSpec& tensor : layer.tensors) {
        const bool quantised = !tensor.is_vector() && tensor.name != kPositions;
        EXPECT_EQ(IsQuantised(tensor.dtype), quantised) << tensor.name;
        if (!quantised) continue;
        // 512, 1024 and 4096 columns: whole groups, 4.5 or 8.5 bits a weight.
        EXPECT_EQ(tensor.bytes() * 16, tensor.rows * tensor.cols * (2 * bits + 1)) << tensor.name;
      }
    }
  }
}

TEST(LayersTest, AreEmbeddingThenTwoPerBlockThenHead) {
  const std::vector<LayerSpec> layers = LayersOf(*BuiltInShape("opt-125m"));
  ASSERT_EQ(layers.size(), 26U);
  EXPECT_EQ(layers[0].part, ComputePart::kEmbedding);
  EXPECT_EQ(layers[1].part, ComputePart::kAttention);
  EXPECT_EQ(layers[2].part, ComputePart::kMlp);
  EXPECT_EQ(layers[2].decoder_layer, 0);
  EXPECT_EQ(layers[24].decoder_layer, 11);
  EXPECT_EQ(layers[25].part, ComputePart::kHead);
  EXPECT_EQ(layers[1].tensors[0].name, "decoder.layers.0.self_attn_layer_norm.weight");
  EXPECT_EQ(FindTensor(layers[0], kPositions)->rows, 2050);
}

TEST(LayersTest, VectorsAreHeldInFp32) {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.dtype = DType::kBF16;
  for (const LayerSpec& layer : LayersOf(shape)) {
    for (const TensorSpec& tensor : layer.tensors) {
      EXPECT_EQ(tensor.is_vector(), tensor.cols == 1) << tensor.name;
      EXPECT_EQ(tensor.dtype, tensor.cols == 1 ? DType::kF32 : DType::kBF16) << tensor.name;
    }
  }
}

TEST(LayersTest, ProjectionsExistWhereTheEmbeddingIsNarrower) {
  const std::vector<LayerSpec> layers = LayersOf(*BuiltInShape("opt-350m"));
  const TensorSpec* in = FindTensor(layers.front(), "decoder.project_in.weight");
  const TensorSpec* out = FindTensor(layers.back(), "decoder.project_out.weight");
  ASSERT_TRUE(in != nullptr && out != nullptr);
  EXPECT_EQ(in->rows, 1024);
  EXPECT_EQ(in->cols, 512);
  EXPECT_EQ(out->rows, 512);
  EXPECT_EQ(out->cols, 1024);
  // Post-norm: no norm before the head.
  EXPECT_EQ(layers.back().tensors.size(), 1U);
}

TEST(LayersTest, AnUntiedHeadIsATensorOfItsOwn) {
  ModelShape shape = *BuiltInShape("opt-125m");
  EXPECT_EQ(FindTensor(LayersOf(shape).back(), kHead), nullptr);
  shape.tied_head = false;
  const std::vector<LayerSpec> untied = LayersOf(shape);
  EXPECT_NE(FindTensor(untied.back(), kHead), nullptr);
}

TEST(LayersTest, SwitchesRemoveBiasesAndNorms) {
  ModelShape shape = *BuiltInShape("opt-125m");
  shape.linear_bias = false;
  shape.norm_affine = false;
  for (const LayerSpec& layer : LayersOf(shape)) {
    for (const TensorSpec& tensor : layer.tensors) EXPECT_FALSE(tensor.is_vector()) << tensor.name;
  }
}

TEST(LayersTest, NamesAreUniqueAndBytesAddUp) {
  const Model model = MakeModel(*BuiltInShape("opt-1.3b"));
  std::set<std::string> names;
  int64_t bytes = 0;
  for (const LayerSpec& layer : model.layers) {
    for (const TensorSpec& tensor : layer.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      bytes += tensor.rows * tensor.cols * (tensor.cols == 1 ? 4 : 2);
    }
  }
  EXPECT_EQ(WeightBytes(model), bytes);
}

}  // namespace
}  // namespace spillway
