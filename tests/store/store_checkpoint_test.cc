#include "src/store/store_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>
#include <vector>

#include "kernels/convert/quantise.h"
#include "spillway/error.h"
#include "src/checkpoint/dummy.h"
#include "src/store/weight_reader.h"
#include "tests/model_util.h"
#include "tests/store/store_test_util.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

class StoreCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override { MakeStore(SmallJob(), path()); }
  fs::path path() const { return temp_.path() / "small"; }
  std::unique_ptr<const Store> Open() const {
    return std::unique_ptr<const Store>(new Store(OpenStore(path())));
  }

  TemporaryFolder temp_{kDiskRoot};
};

// All bytes of a tensor, as they were converted.
std::vector<std::byte> BytesOf(const StoredTensorTable& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.spec.bytes()));
  FillRows(tensor, {0, tensor.spec.rows}, bytes);
  return bytes;
}

TEST_F(StoreCheckpointTest, ListsTheModelsTensorsByName) {
  const auto store = Open();
  const auto checkpoint = MakeStoreCheckpoint(Open());
  EXPECT_TRUE(std::ranges::is_sorted(checkpoint->tensors(), {}, &CheckpointTensor::name));
  for (const StoredTensorTable& tensor : store->tensors()) {
    const int64_t index = checkpoint->Find(tensor.spec.name);
    ASSERT_GE(index, 0) << tensor.spec.name;
    const CheckpointTensor& found = checkpoint->tensors()[static_cast<std::size_t>(index)];
    EXPECT_EQ(found.bytes, tensor.spec.bytes());
    EXPECT_EQ(found.dtype, tensor.spec.dtype);
  }
}

TEST_F(StoreCheckpointTest, GivesTheSameBytesHoweverTheyAreCut) {
  const auto store = Open();
  const auto checkpoint = MakeStoreCheckpoint(Open());
  const auto read_all = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (const StoredTensorTable& tensor : store->tensors()) {
      const std::vector<std::byte> expected = BytesOf(tensor);
      std::vector<std::byte> found(expected.size());
      const int64_t index = checkpoint->Find(tensor.spec.name);
      for (std::size_t at = 0; at < found.size();) {
        const std::size_t count =
            std::min<std::size_t>(found.size() - at, 1 + random() % 3'000'000);
        checkpoint->Read(index, static_cast<int64_t>(at), std::span(found).subspan(at, count));
        at += count;
      }
      EXPECT_TRUE(found == expected) << tensor.spec.name;
    }
  };
  read_all(1);
  checkpoint->FreeBuffers();
  std::vector<std::thread> threads;
  for (unsigned seed = 2; seed < 6; ++seed) threads.emplace_back(read_all, seed);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StoreCheckpointTest, ADamagedTileIsNeverGivenOut) {
  const int64_t offset = Open()->tensors().front().tiles[1].offset;
  std::fstream file(path() / kStoreWeightsName, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset + 100);
  file.put('\x7F');
  file.close();
  const auto store = Open();
  const StoredTensorTable& tensor = store->tensors().front();
  const auto checkpoint = MakeStoreCheckpoint(Open());
  const int64_t index = checkpoint->Find(tensor.spec.name);
  std::vector<std::byte> some(10);
  const int64_t second = tensor.tiles[0].bytes;
  checkpoint->Read(index, second - 10, some);  // ends where the damaged tile begins
  for (int attempt = 0; attempt < 2; ++attempt) {
    ExpectError(ErrorCode::kCorrupt, "tile 1", [&] { checkpoint->Read(index, second, some); });
  }
}

// The small model at 4 or 8 bits: every head of a group is 1 and 2^-6.
StoreJob QuantisedJob(int bits) {
  StoreJob job = SmallJob();
  ModelShape shape = SmallShape();
  shape.weight_bits = bits;
  job.model = MakeModel(shape);
  job.fill = [](const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
    FillRows(tensor, rows, out);
    if (!IsQuantised(tensor.spec.dtype)) {
      std::ranges::fill(out, std::byte{0});
      return;
    }
    constexpr std::array<uint16_t, 2> kHead = {0x3C00, 0x2400};
    const auto group = static_cast<std::size_t>(GroupBytes(tensor.spec.dtype));
    for (std::size_t at = 0; at < out.size(); at += group) {
      std::memcpy(&out[at], kHead.data(), sizeof(kHead));
    }
  };
  return job;
}

class QuantisedStoreTest : public ::testing::TestWithParam<int> {
 protected:
  // Reads all weights as a run loads them.
  void ReadAll(const StoreJob& job) const {
    const fs::path path = temp_.path() / "quantised";
    MakeStore(job, path);
    const std::unique_ptr<const Store> store(new Store(OpenStore(path)));
    EXPECT_EQ(store->shape().weight_bits, GetParam());
    const auto checkpoint =
        MakeStoreCheckpoint(std::unique_ptr<const Store>(new Store(OpenStore(path))));
    const WeightMap map = ResolveWeights(job.model, *checkpoint);
    const WeightReader reader(*checkpoint, map, NonFiniteWeights::kRefuse, 1, 64 << 10);
    for (const StoredTensorTable& tensor : store->tensors()) {
      std::vector<std::byte> expected(static_cast<std::size_t>(tensor.spec.bytes()));
      job.fill(tensor, {0, tensor.spec.rows}, expected);
      std::vector<std::byte> found(expected.size());
      reader.Read({tensor.layer, tensor.index, &tensor.spec, 0}, found, 0);
      EXPECT_TRUE(found == expected) << tensor.spec.name;
    }
  }

  TemporaryFolder temp_{kDiskRoot};
};

INSTANTIATE_TEST_SUITE_P(Bits, QuantisedStoreTest, ::testing::Values(8, 4));

TEST_P(QuantisedStoreTest, GivesTheGroupsThatWereStored) { ReadAll(QuantisedJob(GetParam())); }

// Crafted: every hash is right, and a group's minimum is NaN or its step infinite.
TEST_P(QuantisedStoreTest, AGroupThatIsNotFiniteIsRefused) {
  for (const uint32_t head : {0x24007E00U, 0x7C003C00U}) {
    StoreJob job = QuantisedJob(GetParam());
    job.fill = [fill = job.fill, head](const StoredTensorTable& tensor, RowRange rows,
                                       std::span<std::byte> out) {
      fill(tensor, rows, out);
      if (!tensor.spec.name.ends_with(".fc2.weight")) return;
      std::memcpy(out.data() + out.size() - static_cast<std::size_t>(GroupBytes(tensor.spec.dtype)),
                  &head, sizeof(head));
    };
    ExpectError(ErrorCode::kNonFinite, "fc2", [&] { ReadAll(job); });
    fs::remove_all(temp_.path() / "quantised");
  }
}

// Tensors of 16 bits or more in the checkpoint are quantised while they are read, however runs are
// cut and whatever the staging.
TEST_P(QuantisedStoreTest, QuantisingDoesNotDependOnTheCut) {
  ModelShape shape = SmallShape();
  const auto dummy = MakeDummyCheckpoint(MakeModel(shape), 5);
  shape.weight_bits = GetParam();
  const Model model = MakeModel(shape);
  const std::vector<LayerSpec>& layers = model.layers;
  const WeightMap map = ResolveWeights(model, *dummy);
  for (const auto& [layer, tensor] : {std::pair{1, 2}, std::pair{2, 4}}) {
    const TensorSpec& spec =
        layers[static_cast<std::size_t>(layer)].tensors[static_cast<std::size_t>(tensor)];
    ASSERT_TRUE(IsQuantised(spec.dtype)) << spec.name;
    std::vector<std::byte> expected(static_cast<std::size_t>(spec.bytes()));
    std::vector<uint16_t> halfs(static_cast<std::size_t>(spec.cols));
    const auto row_bytes = static_cast<std::size_t>(spec.row_bytes());
    for (int64_t row = 0; row < spec.rows; ++row) {
      dummy->Read(dummy->Find(spec.name), row * spec.cols * 2,
                  std::as_writable_bytes(std::span(halfs)));
      kernels::QuantiseRow(
          halfs, spec.dtype,
          std::span(expected).subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes));
    }
    for (const int64_t staging_bytes : {4 << 10, 64 << 10, 1 << 20}) {
      const WeightReader reader(*dummy, map, NonFiniteWeights::kRefuse, 1, staging_bytes);
      for (const int64_t rows : {int64_t{1}, int64_t{7}, spec.rows}) {
        std::vector<std::byte> found(expected.size());
        for (int64_t row = 0; row < spec.rows; row += rows) {
          const int64_t count = std::min(rows, spec.rows - row);
          reader.Read({layer, tensor, &spec, row * spec.cols},
                      std::span(found).subspan(static_cast<std::size_t>(row) * row_bytes,
                                               static_cast<std::size_t>(count) * row_bytes),
                      0);
        }
        EXPECT_TRUE(found == expected) << spec.name << " " << staging_bytes << " " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace spillway::testing
