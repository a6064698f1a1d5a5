#include "src/checkpoint/published_tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "spillway/error.h"
#include "tests/checkpoint/model_files.h"
#include "tests/model_util.h"

namespace spillway {
namespace {

// One fp16 tensor in memory whose elements count up.
class CountingCheckpoint : public Checkpoint {
 public:
  CountingCheckpoint(std::string name, std::vector<int64_t> shape) {
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    elements_.resize(static_cast<std::size_t>(count));
    std::iota(elements_.begin(), elements_.end(), uint16_t{0});
    tensors_.push_back({std::move(name), DType::kF16, std::move(shape), 2 * count});
  }

  std::string_view format() const override { return "counting"; }
  void VisitFiles(const std::function<void(const ModelFile&)>& /*visit*/) const override {}
  const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
  void Read(int64_t, int64_t offset, std::span<std::byte> out) const override {
    ASSERT_LE(offset + static_cast<int64_t>(out.size()), tensors_[0].bytes);
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(elements_.data()) + offset,
                out.size());
  }

 private:
  std::vector<CheckpointTensor> tensors_;
  std::vector<uint16_t> elements_;
};

constexpr int64_t kRows = 7;  // of the published tensor
constexpr int64_t kCols = 5;

// Every run of elements of ours, rows [first_row, first_row + num_rows) of the published tensor.
void CheckAllRuns(const FoundTensor& found, int64_t num_rows) {
  const CountingCheckpoint checkpoint(
      "x", found.transposed ? std::vector{kCols, kRows} : std::vector{kRows, kCols});
  const auto expected = [&](int64_t element) {
    const int64_t row = found.PublishedRow(element / kCols);
    const int64_t col = element % kCols;
    return static_cast<uint16_t>(found.transposed ? col * kRows + row : row * kCols + col);
  };
  for (int64_t begin = 0; begin < num_rows * kCols; ++begin) {
    for (int64_t end = begin + 1; end <= num_rows * kCols; ++end) {
      std::vector<uint16_t> read(static_cast<std::size_t>(end - begin));
      ReadPublished(checkpoint, found, kCols, begin, std::as_writable_bytes(std::span(read)));
      for (int64_t at = begin; at < end; ++at) {
        ASSERT_EQ(read[static_cast<std::size_t>(at - begin)], expected(at))
            << "element " << at << " of [" << begin << ", " << end << ")";
      }
    }
  }
}

TEST(PublishedTensorTest, RowsOfALargerTensor) {
  CheckAllRuns({0, 0, kRows, false}, kRows);
  CheckAllRuns({0, 2, kRows, false}, 3);
}

TEST(PublishedTensorTest, ATransposedTensorAndColumnsOfIt) {
  CheckAllRuns({0, 0, kRows, true}, kRows);
  CheckAllRuns({0, 3, kRows, true}, 4);
}

// Queries, keys and values of a head side by side, as GPT-NeoX has them.
TEST(PublishedTensorTest, RunsOfRowsAtEqualDistances) {
  const FoundTensor keys = {0, 1, kRows, false, {2, 3}};
  const std::vector<int64_t> published = {1, 2, 4, 5};
  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(keys.PublishedRow(row), published[static_cast<std::size_t>(row)]);
    EXPECT_EQ(keys.NumTogether(row), row % 2 == 0 ? 2 : 1);
  }
  CheckAllRuns(keys, 4);
  CheckAllRuns({0, 0, kRows, false, {1, 2}}, 4);
  CheckAllRuns({0, 1, kRows, true, {2, 3}}, 4);
}

// Biases of gate and up in turns, as gpt-oss has them: the second of three vectors.
TEST(PublishedTensorTest, ElementsOfAVectorInTurns) {
  const CountingCheckpoint checkpoint("x", {3, kRows});
  const FoundTensor found = {0, 1, kRows, false, {1, 2}, {3, 1}};
  std::vector<uint16_t> read(3);
  ReadPublished(checkpoint, found, 1, 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<uint16_t>{kRows + 1, kRows + 3, kRows + 5}));
  ReadPublished(checkpoint, found, 1, 2, std::as_writable_bytes(std::span(read).first(1)));
  EXPECT_EQ(read[0], kRows + 5);
}

// One of three matrices, as stacks of experts have them.
TEST(PublishedTensorTest, AMatrixOfAStack) {
  const CountingCheckpoint checkpoint("x", {3, kRows, kCols});
  for (const bool transposed : {false, true}) {
    const FoundTensor found = {0, 2, kRows, transposed, {}, {3, 1}};
    std::vector<uint16_t> read(2 * kCols);
    ReadPublished(checkpoint, found, kCols, kCols, std::as_writable_bytes(std::span(read)));
    for (int64_t at = 0; at < std::ssize(read); ++at) {
      const int64_t row = 3 + at / kCols;
      const int64_t col = at % kCols;
      const int64_t within = transposed ? col * kRows + row : row * kCols + col;
      EXPECT_EQ(read[static_cast<std::size_t>(at)], kRows * kCols + within) << at;
    }
  }
}

// A model of one matrix that may be published as a part of another.
Model ModelOf(TensorSource source) {
  Model model;
  model.layers.push_back(
      {ComputePart::kEmbedding, -1, {{"ours", 3, kCols, DType::kF16, {std::move(source)}}}, {}});
  return model;
}

TEST(PublishedTensorTest, APartIsFoundByItsSourceAndOnlyInTheRightShape) {
  const Model model = ModelOf({"theirs", 2, kRows, true});
  const WeightMap map = ResolveWeights(model, CountingCheckpoint("theirs", {kCols, kRows}));
  const FoundTensor& found = map.tensors[0][0];
  EXPECT_EQ(found.first_row, 2);
  EXPECT_EQ(found.num_rows, kRows);
  EXPECT_TRUE(found.transposed);
  EXPECT_TRUE(map.surplus.empty());
  testing::ExpectError(ErrorCode::kModelInconsistent, "is [7, 5], but config.json implies [5, 7]",
                       [&] {
                         ResolveWeights(model, CountingCheckpoint("theirs", {kRows, kCols}));
                       });
}

TEST(PublishedTensorTest, AStackHasSoManyMatrices) {
  TensorSource source = {"theirs", 2, kRows};
  source.stacked = {4, 3};
  const WeightMap map =
      ResolveWeights(ModelOf(source), CountingCheckpoint("theirs", {4, kRows, kCols}));
  EXPECT_EQ(map.tensors[0][0].stacked, source.stacked);
  testing::ExpectError(
      ErrorCode::kModelInconsistent, "is [3, 7, 5], but config.json implies [4, 7, 5]", [&] {
        ResolveWeights(ModelOf(source), CountingCheckpoint("theirs", {3, kRows, kCols}));
      });
}

// A store, and dummy weights, have it as the model does.
TEST(PublishedTensorTest, TheModelsOwnNameComesFirst) {
  const WeightMap map =
      ResolveWeights(ModelOf({"theirs", 2, kRows, true}), CountingCheckpoint("ours", {3, kCols}));
  EXPECT_EQ(map.tensors[0][0].first_row, 0);
  EXPECT_FALSE(map.tensors[0][0].transposed);
}

}  // namespace
}  // namespace spillway
