#include "src/store/weight_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "tests/expect_error.h"

namespace spillway {
namespace {

// GPT-2's first product: published as [kCols, kRows] in fp32, ours is [kRows, kCols].
constexpr int64_t kCols = 768;
constexpr int64_t kRows = 3072;

// One matrix of ones that counts how often it is read.
class CountedCheckpoint : public Checkpoint {
 public:
  std::string_view format() const override { return "counted"; }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t, int64_t, std::span<std::byte> out) const override {
    ++num_reads_;
    const std::span<float> ones(reinterpret_cast<float*>(out.data()), out.size() / sizeof(float));
    std::ranges::fill(ones, 1.0F);
  }
  int64_t num_reads() const { return num_reads_; }

 private:
  std::vector<CheckpointTensor> tensors_ = {
      {"theirs", DType::kF32, {kCols, kRows}, kCols* kRows * 4}};
  mutable std::atomic<int64_t> num_reads_ = 0;
};

// A matrix of a value that fp16 does not have.
class LargeCheckpoint : public Checkpoint {
 public:
  explicit LargeCheckpoint(std::string_view format) : format_(format) {}

  std::string_view format() const override { return format_; }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t, int64_t, std::span<std::byte> out) const override {
    std::ranges::fill(
        std::span(reinterpret_cast<uint16_t*>(out.data()), out.size() / sizeof(uint16_t)),
        uint16_t{0x47C3});  // 99,840 in bf16
  }

 private:
  std::string_view format_;
  std::vector<CheckpointTensor> tensors_ = {{"ours", DType::kBF16, {2, 64}, 2 * 64 * 2}};
};

class WeightReaderTest : public ::testing::Test {
 protected:
  WeightReaderTest() {
    model_.layers.push_back({ComputePart::kEmbedding,
                             -1,
                             {{"ours", kRows, kCols, DType::kF16, {{"theirs", 0, kRows, true}}}},
                             {}});
  }

  Model model_;
  CountedCheckpoint checkpoint_;
};

// A cut within a row would take a read for each of its elements.
TEST_F(WeightReaderTest, ATransposedMatrixIsCutBetweenRows) {
  const WeightMap map = ResolveWeights(model_, checkpoint_);
  const WeightReader reader(checkpoint_, map, NonFiniteWeights::kRefuse, 1);
  const WeightRun run = {0, 0, &model_.layers[0].tensors[0], 0};
  EXPECT_EQ(reader.UnitsOfRun(run, kCols * 2 * 10 + 100), kCols * 10);
  EXPECT_EQ(reader.UnitsOfRun(run, 100), 50) << "not one row fits";

  std::vector<std::byte> out(static_cast<std::size_t>(kRows * kCols * 2));
  reader.Read(run, out, 0);
  constexpr int64_t kRowsOfStage = WeightReader::kStageBytes / 4 / kCols;
  EXPECT_EQ(checkpoint_.num_reads(), (kRows + kRowsOfStage - 1) / kRowsOfStage * kCols);
}

TEST(WeightReaderRangeTest, ValuesBeyondFp16AreToldOfWhatHoldsThem) {
  Model model;
  model.layers.push_back({ComputePart::kEmbedding, -1, {{"ours", 2, 64, DType::kF16, {}}}, {}});
  const std::pair<const char*, const char*> kRemedies[] = {
      {"safetensors", "set \"torch_dtype\" in config.json to \"bfloat16\""},
      {"GGUF", "leave --weight-bits out, if it is given, or get the file in BF16"}};
  for (const auto& [format, remedy] : kRemedies) {
    const LargeCheckpoint checkpoint(format);
    const WeightMap map = ResolveWeights(model, checkpoint);
    const WeightReader reader(checkpoint, map, NonFiniteWeights::kRefuse, 1);
    std::vector<std::byte> out(std::size_t{2} * 64 * 2);
    testing::ExpectError(ErrorCode::kModelUnsupported,
                         fmt::format("holds bf16 values that fp16 cannot hold; {}", remedy), [&] {
                           reader.Read({0, 0, &model.layers[0].tensors[0], 0}, out, 0);
                         });
  }
}

}  // namespace
}  // namespace spillway
