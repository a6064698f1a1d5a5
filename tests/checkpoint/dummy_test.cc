#include "src/checkpoint/dummy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/checkpoint/weight_map.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

using testing::ReadAll;

std::vector<float> Floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

TEST(DummyTest, HoldsWhatTheModelNeeds) {
  for (const std::string& name : BuiltInShapeNames()) {
    SCOPED_TRACE(name);
    const ModelShape shape = *BuiltInShape(name);
    const auto checkpoint = MakeDummyCheckpoint(MakeModel(shape), 0);
    EXPECT_TRUE(ResolveWeights(MakeModel(shape), *checkpoint).surplus.empty());
    int64_t bytes = 0;
    for (const CheckpointTensor& tensor : checkpoint->tensors()) bytes += tensor.bytes;
    EXPECT_EQ(bytes, WeightBytes(MakeModel(shape)));
  }
}

TEST(DummyTest, BytesDoNotDependOnTheCut) {
  const auto checkpoint = MakeDummyCheckpoint(MakeModel(*BuiltInShape("opt-125m")), 7);
  for (const std::string name :
       {"decoder.layers.0.self_attn.q_proj.weight", "decoder.layers.3.fc1.bias",
        "decoder.layers.3.final_layer_norm.weight"}) {
    const std::string whole = ReadAll(*checkpoint, name);
    const int64_t index = checkpoint->Find(name);
    std::string pieces(whole.size(), '\0');
    const std::span<std::byte> out = std::as_writable_bytes(std::span(pieces));
    std::size_t size = 1;
    for (std::size_t at = 0; at < whole.size(); at += size, size = size * 3 % 9973) {
      size = std::min(size, whole.size() - at);
      checkpoint->Read(index, static_cast<int64_t>(at), out.subspan(at, size));
    }
    EXPECT_EQ(pieces, whole) << name;
  }
}

TEST(DummyTest, ValuesHaveTheStatedDeviation) {
  const auto checkpoint = MakeDummyCheckpoint(MakeModel(*BuiltInShape("opt-125m")), 7);
  double square = 0;
  const std::vector<float> bias = Floats(ReadAll(*checkpoint, "decoder.layers.3.fc1.bias"));
  for (const float value : bias) square += double{value} * double{value};
  EXPECT_NEAR(std::sqrt(square / static_cast<double>(bias.size())), 0.02, 0.001);
  for (const float value : Floats(ReadAll(*checkpoint, "decoder.final_layer_norm.weight")))
    EXPECT_EQ(value, 1);
  for (const float value : Floats(ReadAll(*checkpoint, "decoder.final_layer_norm.bias")))
    EXPECT_EQ(value, 0);
}

TEST(DummyTest, SeedsAndTensorsDiffer) {
  const auto one = MakeDummyCheckpoint(MakeModel(*BuiltInShape("opt-125m")), 1);
  const auto two = MakeDummyCheckpoint(MakeModel(*BuiltInShape("opt-125m")), 2);
  const std::string name = "decoder.layers.0.fc1.bias";
  EXPECT_NE(ReadAll(*one, name), ReadAll(*two, name));
  EXPECT_NE(ReadAll(*one, name), ReadAll(*one, "decoder.layers.1.fc1.bias"));
  EXPECT_EQ(ReadAll(*one, name),
            ReadAll(*MakeDummyCheckpoint(MakeModel(*BuiltInShape("opt-125m")), 1), name));
}

}  // namespace
}  // namespace spillway
