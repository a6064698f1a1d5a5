#include "src/checkpoint/file_hashes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <thread>

#include "src/checkpoint/model_folder.h"
#include "tests/temporary_folder.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

// Longer than one piece, and not a whole number of them.
constexpr std::size_t kBytes = (9 << 20) + 17;

class FileHashesTest : public ::testing::Test {
 protected:
  void SetUp() override { Write(text_); }

  void Write(const std::string& text) { folder_.Write("model/weights", text); }

  // Hash of the file, and whether it was read for it.
  std::pair<uint64_t, bool> Hash(const fs::path& memory) {
    bool was_read = false;
    FileHashes hashes(memory);
    const uint64_t hash = hashes.Of(ModelFolder(folder_ / "model").Open("weights"),
                                    [&](const std::string&, int64_t, int64_t) { was_read = true; });
    hashes.Save();
    return {hash, was_read};
  }

  // Puts back the times of before; that of the change stays what it is.
  void WriteKeepingTimes(const std::string& text) {
    const fs::path path = folder_ / "model/weights";
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    Write(text);
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  void Settle() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

  TemporaryFolder folder_{MemoryRoot()};
  const bool made_ = fs::create_directory(folder_ / "model");
  std::string text_ = std::string(kBytes, 'a');
};

TEST_F(FileHashesTest, EveryByteCounts) {
  const uint64_t whole = Hash({}).first;
  EXPECT_EQ(Hash({}), std::pair(whole, true));
  for (const std::size_t at : {std::size_t{0}, kBytes / 2, kBytes - 1}) {
    std::string other = text_;
    other[at] = 'b';
    WriteKeepingTimes(other);
    EXPECT_NE(Hash({}).first, whole) << at;
  }
  Write(text_ + "a");
  EXPECT_NE(Hash({}).first, whole);
  Write(text_);
  EXPECT_EQ(Hash({}).first, whole);
}

TEST_F(FileHashesTest, AnUnchangedFileIsReadOnce) {
  const fs::path memory = folder_ / "cache/file-hashes";
  Settle();
  const uint64_t whole = Hash(memory).first;
  EXPECT_EQ(Hash(memory), std::pair(whole, false));
  WriteKeepingTimes(std::string(kBytes, 'c'));
  const auto [changed, was_read] = Hash(memory);
  EXPECT_TRUE(was_read);
  EXPECT_NE(changed, whole);
}

TEST_F(FileHashesTest, AFileThatHasJustChangedIsNotRemembered) {
  const fs::path memory = folder_ / "file-hashes";
  Hash(memory);
  EXPECT_TRUE(Hash(memory).second);
}

TEST_F(FileHashesTest, OneObjectReadsAFileOnce) {
  int num_calls = 0;
  FileHashes hashes({});
  const ModelFile file = ModelFolder(folder_ / "model").Open("weights");
  const auto count = [&](const std::string&, int64_t, int64_t) { ++num_calls; };
  const uint64_t whole = hashes.Of(file, count);
  const int num_of_first = num_calls;
  EXPECT_GT(num_of_first, 0);
  EXPECT_EQ(hashes.Of(file, count), whole);
  EXPECT_EQ(num_calls, num_of_first);
}

TEST_F(FileHashesTest, AMemoryThatSaysNothingIsPassedOver) {
  const fs::path memory = folder_ / "file-hashes";
  Settle();
  folder_.Write("file-hashes", "1 2 3\nx\n1 2 3 4 5 zz\n1 2 3 4 5 6 7\n");
  const uint64_t whole = Hash(memory).first;
  EXPECT_EQ(Hash(memory), std::pair(whole, false));
  EXPECT_EQ(Hash(folder_ / "absent/spillway/file-hashes"), std::pair(whole, true));
  EXPECT_FALSE(fs::exists(folder_ / "absent"));
}

}  // namespace
}  // namespace spillway::testing
