#include "src/model/store_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "spillway/error.h"
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

  DiskTempFolder temp_;
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
    ExpectDiskError(ErrorCode::kCorrupt, "tile 1", [&] { checkpoint->Read(index, second, some); });
  }
}

}  // namespace
}  // namespace spillway::testing
