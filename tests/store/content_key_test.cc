#include "src/store/content_key.h"

#include <sys/stat.h>

#include "src/store/make_store.h"
#include "tests/checkpoint/model_files.h"
#include "tests/expect_error.h"
#include "tests/store/store_test_util.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

class ContentKeyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.Write("config.json", "{\"a\":1}");
    folder_.Write("model.safetensors", GoodSafetensors());
  }

  std::string Key(const ModelShape& shape = SmallShape()) {
    FileHashes hashes({});
    return CheckpointContentKey(*OpenCheckpoint(folder_.path()), shape, hashes);
  }
  std::string Published() {
    FileHashes hashes({});
    return PublishedKey(*OpenCheckpoint(folder_.path()), folder_.path(), hashes);
  }

  TemporaryFolder folder_{MemoryRoot()};
};

TEST_F(ContentKeyTest, IsOfTheBytesAlone) {
  const std::string before = Key();
  EXPECT_EQ(before.size(), 16U);
  fs::last_write_time(folder_ / "model.safetensors",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  folder_.Write("README.md", "A model.");
  EXPECT_EQ(Key(), before);
  std::string other = GoodSafetensors();
  other.back() = static_cast<char>(other.back() ^ 1);
  const fs::file_time_type time = fs::last_write_time(folder_ / "model.safetensors");
  folder_.Write("model.safetensors", other);
  fs::last_write_time(folder_ / "model.safetensors", time);
  EXPECT_NE(Key(), before);
}

TEST_F(ContentKeyTest, CountsTheShapeInMemoryWithoutItsName) {
  ModelShape shape = SmallShape();
  shape.name = "another";
  EXPECT_EQ(Key(shape), Key());
  shape.dtype = DType::kBF16;
  EXPECT_NE(Key(shape), Key());
  EXPECT_NE(DummyContentKey(shape, 0), DummyContentKey(SmallShape(), 0));
  EXPECT_NE(DummyContentKey(shape, 0), DummyContentKey(shape, 1));
}

TEST_F(ContentKeyTest, CountsTheSettingsOfWhatIsPublished) {
  const std::string before = Published();
  folder_.Write("generation_config.json", "{\"temperature\":0.5}");
  EXPECT_NE(Published(), before);
}

TEST_F(ContentKeyTest, OfAStoreIsThatOfItsChecksums) {
  const auto store_key = [&](const fs::path& path) {
    FileHashes hashes({});
    return FolderContentKey(path, hashes);
  };
  MakeStore(SmallJob(), folder_ / "one");
  MakeStore(SmallJob(), folder_ / "two");
  EXPECT_EQ(store_key(folder_ / "one"), store_key(folder_ / "two"));
  StoreJob job = SmallJob();
  const auto fill = job.fill;
  job.fill = [&](const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
    fill(tensor, rows, out);
    if (rows.begin == 0 && tensor.index == 0) out.back() ^= std::byte{1};
  };
  MakeStore(job, folder_ / "three");
  EXPECT_NE(store_key(folder_ / "three"), store_key(folder_ / "one"));
}

TEST_F(ContentKeyTest, AStoreThatOthersMayChangeIsNotUsed) {
  const fs::path common = folder_ / "spillway-0123.store";
  EXPECT_FALSE(HasStores(folder_.path()));
  EXPECT_EQ(StorePath(folder_.path(), "0123"), common);
  fs::create_directory(common);
  EXPECT_TRUE(HasStores(folder_.path()));
  EXPECT_EQ(StorePath(folder_.path(), "0123"), common);
  ASSERT_EQ(::chmod(common.c_str(), 0777), 0);
  const fs::path own = StorePath(folder_.path(), "0123");
  EXPECT_EQ(own.filename(), "spillway-0123-" + std::to_string(::geteuid()) + ".store");
  fs::create_directory_symlink(folder_.path(), own);
  ExpectError(ErrorCode::kPath, "--offload-dir", [&] { StorePath(folder_.path(), "0123"); });
}

TEST_F(ContentKeyTest, DecidesWhetherACacheIsUsed) {
  const fs::path cache = folder_ / "cache";
  EXPECT_EQ(ProbeStore(cache, "0123456789abcdef"), StoreState::kAbsent);
  fs::create_directory(cache);
  EXPECT_EQ(ProbeStore(cache, "0123456789abcdef"), StoreState::kAbsent);
  fs::remove(cache);
  MakeStore(SmallJob(), cache);
  EXPECT_EQ(ProbeStore(cache, "0123456789abcdef"), StoreState::kReady);
  EXPECT_EQ(ProbeStore(cache, "another"), StoreState::kStale);
  fs::remove(cache / "store.json");
  EXPECT_EQ(ProbeStore(cache, "0123456789abcdef"), StoreState::kUnusable);
}

}  // namespace
}  // namespace spillway::testing
