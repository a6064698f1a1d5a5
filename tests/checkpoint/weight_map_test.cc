#include "src/checkpoint/weight_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "spillway/error.h"
#include "tests/checkpoint/model_files.h"
#include "tests/model_util.h"

namespace spillway {
namespace {

using testing::ExpectError;

// A checkpoint of zeros in memory, whose tensors a test may rename, reshape or drop.
class FakeCheckpoint : public Checkpoint {
 public:
  explicit FakeCheckpoint(const ModelShape& shape) {
    for (const LayerSpec& layer : LayersOf(shape)) {
      for (const TensorSpec& spec : layer.tensors) {
        Add("model." + spec.name,
            spec.is_vector() ? std::vector{spec.rows} : std::vector{spec.rows, spec.cols});
      }
    }
  }

  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t bytes = 2;
    for (const int64_t size : shape) bytes *= size;
    const auto at = std::ranges::lower_bound(tensors_, name, {}, &CheckpointTensor::name);
    tensors_.insert(at, {name, DType::kF16, std::move(shape), bytes});
  }
  void Refuse(const std::string& name) {
    std::ranges::find(tensors_, name, &CheckpointTensor::name)->refusal = name + " is of a type";
  }
  void Rename(const std::string& name, const std::string& to) {
    CheckpointTensor tensor = *std::ranges::find(tensors_, name, &CheckpointTensor::name);
    Remove(name);
    Add(to, tensor.shape);
  }
  // Puts `prefix` in place of so many characters of every name.
  void PutInFront(const std::string& prefix, std::size_t num_replaced) {
    for (CheckpointTensor& tensor : tensors_) tensor.name.replace(0, num_replaced, prefix);
  }
  void Remove(const std::string& name) {
    std::erase_if(tensors_, [&](const auto& t) { return t.name == name; });
  }
  void SetByte(const std::string& name, char byte) { bytes_[name] = byte; }

  std::string_view format() const override { return "fake"; }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t index, int64_t, std::span<std::byte> out) const override {
    const auto at = bytes_.find(tensors_[static_cast<std::size_t>(index)].name);
    std::ranges::fill(out, static_cast<std::byte>(at == bytes_.end() ? 0 : at->second));
  }

 private:
  std::vector<CheckpointTensor> tensors_;
  std::map<std::string, char> bytes_;
};

class WeightMapTest : public ::testing::Test {
 protected:
  WeightMap Resolve() { return ResolveWeights(MakeModel(shape_), checkpoint_); }

  ModelShape shape_ = *BuiltInShape("opt-125m");
  FakeCheckpoint checkpoint_{shape_};
};

TEST_F(WeightMapTest, EveryTensorIsFound) {
  const WeightMap map = Resolve();
  const std::vector<LayerSpec> layers = LayersOf(shape_);
  ASSERT_EQ(map.tensors.size(), layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    ASSERT_EQ(map.tensors[layer].size(), layers[layer].tensors.size());
    for (std::size_t tensor = 0; tensor < layers[layer].tensors.size(); ++tensor) {
      EXPECT_EQ(
          checkpoint_.tensors()[static_cast<std::size_t>(map.tensors[layer][tensor].index)].name,
          "model." + layers[layer].tensors[tensor].name);
    }
  }
  EXPECT_TRUE(map.surplus.empty());
}

TEST_F(WeightMapTest, TheOldNameOfTheFinalNormIsKnown) {
  for (const std::string part : {"weight", "bias"}) {
    checkpoint_.Remove("model.decoder.final_layer_norm." + part);
    checkpoint_.Add("decoder.layer_norm." + part, {768});
  }
  EXPECT_TRUE(Resolve().surplus.empty());
}

// Names of the text part of a larger model, under each of which its own name finds it.
TEST_F(WeightMapTest, TextPartsAreFound) {
  const std::string name = "decoder.layers.3.fc1.weight";
  for (const char* prefix : {"language_model.", "language_model.model.", "model.language_model.",
                             "text_model.", "model.text_model."}) {
    FakeCheckpoint whole(shape_);
    whole.Remove("model." + name);
    whole.Add(prefix + name, {3072, 768});
    whole.Add("vision_tower." + name, {3072, 768});
    const WeightMap map = ResolveWeights(MakeModel(shape_), whole);
    EXPECT_EQ(map.surplus, std::vector<std::string>{"vision_tower." + name}) << prefix;
  }
}

TEST_F(WeightMapTest, MissingTensorsAreListed) {
  for (int block = 3; block < 11; ++block) {
    checkpoint_.Remove("model.decoder.layers." + std::to_string(block) +
                       ".self_attn_layer_norm.weight");
  }
  ExpectError(ErrorCode::kModelInconsistent,
              "8 of 196 tensors missing, download again: layers.3.self_attn_layer_norm.weight, "
              "layers.4.self_attn_layer_norm.weight",
              [&] { Resolve(); });
}

// GPT-2's share no beginning.
TEST_F(WeightMapTest, MissingTensorsAreNamedInFullWhereNamesShareNothing) {
  const ModelShape shape = *BuiltInShape("gpt2");
  FakeCheckpoint checkpoint(shape);
  for (const char* name : {"wte.weight", "h.0.ln_1.weight"})
    checkpoint.Remove(std::string("model.") + name);
  ExpectError(ErrorCode::kModelInconsistent, "download again: wte.weight, h.0.ln_1.weight",
              [&] { ResolveWeights(MakeModel(shape), checkpoint); });
}

TEST_F(WeightMapTest, OtherShapesAreRefusedWithBoth) {
  checkpoint_.Remove("model.decoder.embed_tokens.weight");
  checkpoint_.Add("model.decoder.embed_tokens.weight", {50265, 768});
  ExpectError(ErrorCode::kModelInconsistent,
              "is [50265, 768], but config.json implies [50272, 768]", [&] { Resolve(); });
}

TEST_F(WeightMapTest, ATransposedMatrixIsAnotherShape) {
  checkpoint_.Remove("model.decoder.layers.0.fc1.weight");
  checkpoint_.Add("model.decoder.layers.0.fc1.weight", {768, 3072});
  ExpectError(ErrorCode::kModelInconsistent, "is [768, 3072], but config.json implies [3072, 768]",
              [&] { Resolve(); });
}

TEST_F(WeightMapTest, AVectorIsNotAMatrix) {
  checkpoint_.Remove("model.decoder.layers.0.fc1.bias");
  checkpoint_.Add("model.decoder.layers.0.fc1.bias", {3072, 1});
  ExpectError(ErrorCode::kModelInconsistent, "is [3072, 1]", [&] { Resolve(); });
}

TEST_F(WeightMapTest, SurplusTensorsAreNamed) {
  checkpoint_.Add("decoder.version", {1});
  EXPECT_EQ(Resolve().surplus, std::vector<std::string>{"decoder.version"});
}

TEST_F(WeightMapTest, ALayerBehindTheLastIsRefused) {
  checkpoint_.Add("model.decoder.layers.12.fc1.weight", {3072, 768});
  ExpectError(ErrorCode::kModelInconsistent,
              "the config has 12 layers, but the weights have \"decoder.layers.12.fc1.weight\"",
              [&] { Resolve(); });
}

TEST_F(WeightMapTest, ATiedHeadMayBeStoredTwice) {
  checkpoint_.Add("lm_head.weight", {50272, 768});
  EXPECT_TRUE(Resolve().surplus.empty());
}

TEST_F(WeightMapTest, ATiedHeadThatDiffersIsRefused) {
  checkpoint_.Add("lm_head.weight", {50272, 768});
  checkpoint_.SetByte("lm_head.weight", 1);
  ExpectError(ErrorCode::kModelInconsistent, "\"tie_word_embeddings\" to false",
              [&] { Resolve(); });
}

// Programs that keep one name of a shared matrix may keep the head's.
TEST_F(WeightMapTest, ATiedPairMayBeThereAsTheHead) {
  checkpoint_.Rename("model.decoder.embed_tokens.weight", "lm_head.weight");
  const WeightMap map = Resolve();
  EXPECT_EQ(map.tensors[0][0].index, checkpoint_.Find("lm_head.weight"));
  EXPECT_TRUE(map.surplus.empty());
}

TEST_F(WeightMapTest, EveryFamilysTiedPairMayBeThereAsTheHead) {
  for (const char* name : {"gpt2", "llama-3.2-1b", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2b",
                           "gemma-2-2b", "gemma-3-1b"}) {
    const ModelShape shape = *BuiltInShape(name);
    ASSERT_TRUE(shape.tied_head) << name;
    FakeCheckpoint checkpoint(shape);
    checkpoint.Rename("model." + MakeModel(shape).layers[0].tensors[0].name, "lm_head.weight");
    EXPECT_TRUE(ResolveWeights(MakeModel(shape), checkpoint).surplus.empty()) << name;
  }
  ModelShape shape = *BuiltInShape("pythia-70m");
  shape.tied_head = true;
  FakeCheckpoint checkpoint(shape);
  checkpoint.Rename("model.embed_in.weight", "embed_out.weight");
  EXPECT_TRUE(ResolveWeights(MakeModel(shape), checkpoint).surplus.empty());
}

TEST_F(WeightMapTest, AnUntiedHeadIsNoEmbedding) {
  shape_.tied_head = false;
  checkpoint_.Rename("model.decoder.embed_tokens.weight", "lm_head.weight");
  ExpectError(ErrorCode::kModelInconsistent, "1 of 197 tensors missing", [&] { Resolve(); });
}

TEST_F(WeightMapTest, APrefixOfAllNamesIsTaken) {
  for (const char* prefix : {"module.model.", "model.model.", "_orig_mod.", "a.b.model."}) {
    FakeCheckpoint checkpoint(shape_);
    checkpoint.PutInFront(prefix, std::string_view("model.").size());
    const WeightMap map = ResolveWeights(MakeModel(shape_), checkpoint);
    EXPECT_TRUE(map.surplus.empty()) << prefix;
    EXPECT_EQ(map.tensors.back().back().index,
              checkpoint.FindExact(prefix + std::string("decoder.final_layer_norm.bias")));
  }
}

TEST_F(WeightMapTest, APrefixStandsBeforeTheHeadToo) {
  checkpoint_.PutInFront("module.model.", std::string_view("model.").size());
  checkpoint_.Rename("module.model.decoder.embed_tokens.weight", "module.lm_head.weight");
  EXPECT_TRUE(Resolve().surplus.empty());
}

TEST_F(WeightMapTest, TwoModelsInOneFileAreNotGuessedAt) {
  checkpoint_.PutInFront("teacher.", std::string_view("model.").size());
  checkpoint_.Add("student.decoder.embed_tokens.weight", {50272, 768});
  ExpectError(ErrorCode::kModelInconsistent,
              "as \"decoder.embed_tokens.weight\": the weights have \"student.decoder.",
              [&] { Resolve(); });
}

TEST_F(WeightMapTest, TensorsThatCannotBeReadMatterWhereTheyAreNeeded) {
  checkpoint_.Add("position_ids", {1});
  checkpoint_.Refuse("position_ids");
  EXPECT_EQ(Resolve().surplus, std::vector<std::string>{"position_ids"});
  checkpoint_.Refuse("model.decoder.layers.0.fc1.bias");
  ExpectError(ErrorCode::kModelUnsupported, "model.decoder.layers.0.fc1.bias is of a type",
              [&] { Resolve(); });
}

TEST_F(WeightMapTest, ATiedHeadThatCannotBeReadIsRefused) {
  checkpoint_.Add("lm_head.weight", {50272, 768});
  checkpoint_.Refuse("lm_head.weight");
  ExpectError(ErrorCode::kModelInconsistent, "differs", [&] { Resolve(); });
}

TEST_F(WeightMapTest, AnUntiedHeadIsFoundOrMissing) {
  shape_.tied_head = false;
  ExpectError(ErrorCode::kModelInconsistent,
              "1 of 197 tensors missing, download again: lm_head.weight", [&] { Resolve(); });
  checkpoint_.Add("lm_head.weight", {50272, 768});
  checkpoint_.SetByte("lm_head.weight", 1);
  EXPECT_EQ(Resolve().tensors.back().size(), 3U);
}

}  // namespace
}  // namespace spillway
