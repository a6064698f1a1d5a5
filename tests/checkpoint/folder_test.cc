// Faults of files and folders that do not depend on the container.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "spillway/error.h"
#include "src/checkpoint/checkpoint.h"
#include "src/checkpoint/model_folder.h"
#include "tests/checkpoint/model_files.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::ExpectOpenError;
using testing::HeaderEntry;
using testing::Safetensors;

constexpr auto kIndex = "model.safetensors.index.json";

std::string OneTensor(std::string_view name) {
  return Safetensors("{" + HeaderEntry(name, "F16", "[1]", "[0,2]") + "}", "xx");
}

std::string IndexOf(std::string_view map) {
  return "{\"metadata\":{},\"weight_map\":{" + std::string(map) + "}}";
}

TEST(FolderTest, NothingThereIsMissing) {
  const TemporaryFolder folder(MemoryRoot());
  ExpectOpenError(ErrorCode::kModelMissing, "holds no weights", folder.path());
  ExpectOpenError(ErrorCode::kModelMissing, "No such file", folder.path() / "absent");
  folder.Write("file", "x");
  ExpectOpenError(ErrorCode::kModelMissing, "not a folder", folder.path() / "file");
}

// M26.
TEST(FolderTest, OnlyRegularFilesAreRead) {
  const TemporaryFolder folder(MemoryRoot());
  const fs::path path = folder.path() / "model.safetensors";
  fs::create_directory(path);
  ExpectOpenError(ErrorCode::kModelMissing, "not a regular file", folder.path());
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ExpectOpenError(ErrorCode::kModelMissing, "not a regular file", folder.path());
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  ExpectOpenError(ErrorCode::kModelMissing, "not a regular file", folder.path());
  fs::remove(path);
  fs::create_symlink("nowhere", path);
  ExpectOpenError(ErrorCode::kModelMissing, "model.safetensors: a link to what is not there",
                  folder.path());
  ExpectOpenError(ErrorCode::kModelMissing, "a link to what is not there; give --model", path);
}

TEST(FolderTest, ShardsWithoutTheirIndexAreNamed) {
  for (const auto& [shard, index] :
       {std::pair{"model-00001-of-00002.safetensors", "model.safetensors.index.json"},
        std::pair{"pytorch_model-00002-of-00002.bin", "pytorch_model.bin.index.json"}}) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(shard, "x");
    ExpectOpenError(ErrorCode::kModelMissing,
                    std::string(shard) + ", but not the index of such parts, " + index,
                    folder.path());
  }
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("adapter-1-of-2.safetensors", "x");
  ExpectOpenError(ErrorCode::kModelMissing, "holds no weights", folder.path());
}

TEST(FolderTest, ASocketIsNotRead) {
  const TemporaryFolder folder(MemoryRoot());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (folder.path() / "model.safetensors").string();
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  path.copy(address.sun_path, path.size());
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    ExpectOpenError(ErrorCode::kModelMissing, "model.safetensors", folder.path());
  }
  ::close(fd);
}

// H5: the limit is named, not mistaken for a missing file.
TEST(FolderTest, TooFewDescriptorsAreASystemLimit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs descriptors itself";
#endif
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("model.safetensors", testing::GoodSafetensors());
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  const int free_fd = ::dup(0);
  ::close(free_fd);
  const rlimit none = {static_cast<rlim_t>(free_fd), old.rlim_max};
  const rlimit one = {static_cast<rlim_t>(free_fd) + 1, old.rlim_max};
  for (const rlimit& limit : {none, one}) {
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    ExpectOpenError(ErrorCode::kSystemLimit, "ulimit -n", folder.path());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
}

TEST(FolderTest, AMainFileMayBeALink) {
  const TemporaryFolder cache(MemoryRoot());
  fs::create_directory(cache.path() / "blobs");
  fs::create_directories(cache.path() / "snapshots" / "main");
  cache.Write("blobs/0a1b", testing::GoodSafetensors());
  fs::create_symlink("../../blobs/0a1b", cache.path() / "snapshots" / "main" / "model.safetensors");
  EXPECT_EQ(OpenCheckpoint(cache.path() / "snapshots" / "main")->tensors().size(), 2U);
}

TEST(FolderTest, FilesAreWhatLinksLeadTo) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("b", "x");
  folder.Write(".hidden", "x");
  fs::create_directory(folder.path() / "d");
  fs::create_symlink("b", folder.path() / "a");
  fs::create_symlink("nowhere", folder.path() / "c");
  EXPECT_EQ(ModelFolder(folder.path()).Files(), (std::vector<std::string>{"a", "b"}));
}

// M14.
TEST(FolderTest, AChangeDuringTheRunIsNoticed) {
  const TemporaryFolder folder(MemoryRoot());
  const fs::path path = folder.path() / "model.safetensors";
  const std::string good = testing::GoodSafetensors();
  folder.Write("model.safetensors", good);
  const auto checkpoint = OpenCheckpoint(folder.path());
  const auto read = [&] { testing::ReadAll(*checkpoint, "a"); };
  fs::resize_file(path, good.size() - 1);
  ExpectError(ErrorCode::kCorrupt, "changed while it was in use", read);
  fs::resize_file(path, 0);
  ExpectError(ErrorCode::kCorrupt, "changed while it was in use", read);
}

TEST(FolderTest, ARewriteDuringTheRunIsNoticed) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("model.safetensors", testing::GoodSafetensors());
  const auto checkpoint = OpenCheckpoint(folder.path());
  const fs::path path = folder.path() / "model.safetensors";
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
  ExpectError(ErrorCode::kCorrupt, "changed", [&] { testing::ReadAll(*checkpoint, "a"); });
}

// A file put in its place does not matter: the old one stays open.
TEST(FolderTest, AReplacementDuringTheRunIsNotSeen) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("model.safetensors", testing::GoodSafetensors());
  const auto checkpoint = OpenCheckpoint(folder.path());
  folder.Write("new", "something else");
  fs::rename(folder.path() / "new", folder.path() / "model.safetensors");
  EXPECT_EQ(testing::ReadAll(*checkpoint, "b"), "\14\15\16\17");
}

TEST(ShardsTest, AreReadAsOneCheckpoint) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("b"));
  folder.Write("two", OneTensor("a"));
  folder.Write(kIndex, IndexOf(R"("a":"two","b":"one")"));
  const auto checkpoint = OpenCheckpoint(folder.path());
  ASSERT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->tensors()[0].name, "a");
  EXPECT_EQ(testing::ReadAll(*checkpoint, "b"), "xx");
}

// M17.
TEST(ShardsTest, MissingOnesAreListed) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("a"));
  folder.Write(kIndex, IndexOf(R"("a":"one","b":"two","c":"three")"));
  ExpectOpenError(ErrorCode::kModelMissing, "2 of 3 shards are missing, download them: three, two",
                  folder.path());
}

// M18.
TEST(ShardsTest, TensorsMustBeWhereTheIndexSays) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("a"));
  folder.Write("two", OneTensor("b"));
  folder.Write(kIndex, IndexOf(R"("a":"two","b":"one")"));
  ExpectOpenError(ErrorCode::kModelInconsistent, "puts into two", folder.path());
}

// Names of the tensors that are there, with those that no one can read in brackets.
std::string NamesIn(const fs::path& folder) {
  std::string names;
  const auto checkpoint = OpenCheckpoint(folder);
  for (const CheckpointTensor& tensor : checkpoint->tensors())
    names += tensor.refusal.empty() ? tensor.name + " " : "(" + tensor.name + ") ";
  return names;
}

// The Hub's conversion drops shared tensors and copies the index as it was; other programs add
// some.
TEST(ShardsTest, ListedTensorsMayBeAbsentAndOthersPresent) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("a"));
  folder.Write("two", Safetensors("{" + HeaderEntry("b", "F16", "[1]", "[0,2]") + "," +
                                      HeaderEntry("extra", "F16", "[1]", "[2,4]") + "}",
                                  "bbxx"));
  folder.Write(kIndex, IndexOf(R"("a":"one","b":"two","absent":"two")"));
  EXPECT_EQ(NamesIn(folder.path()), "a b extra ");
}

// The index decides between two copies; where it says nothing, nobody does.
TEST(ShardsTest, ACopyInAnotherShardDoesNotCount) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("a"));
  const std::string two = "{" + HeaderEntry("a", "F16", "[1]", "[0,2]") + "," +
                          HeaderEntry("b", "F16", "[1]", "[2,4]") + "}";
  folder.Write("two", Safetensors(two, "aabb"));
  folder.Write(kIndex, IndexOf(R"("a":"one","b":"two")"));
  EXPECT_EQ(testing::ReadAll(*OpenCheckpoint(folder.path()), "a"), "xx");
  folder.Write("one", OneTensor("b"));
  folder.Write(kIndex, IndexOf(R"("c":"one","d":"two")"));
  EXPECT_EQ(NamesIn(folder.path()), "a (b) ");
}

// M19.
TEST(ShardsTest, NamesCannotLeaveTheFolder) {
  for (const std::string name :
       {"../x", "/etc/passwd", "a/b", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kIndex, IndexOf("\"a\":\"" + name + "\""));
    ExpectOpenError(ErrorCode::kUnsafe, "not a plain file name", folder.path());
  }
}

TEST(ShardsTest, LinksLeadWhereTheUserPutThem) {
  const TemporaryFolder outside(MemoryRoot());
  outside.Write("target", OneTensor("a"));
  const TemporaryFolder folder(MemoryRoot());
  folder.Write(kIndex, IndexOf(R"("a":"one")"));
  folder.Write("real", OneTensor("a"));
  for (const fs::path& target :
       {outside.path() / "target", ".." / outside.path().filename() / "target", fs::path("real")}) {
    fs::create_symlink(target, folder.path() / "one");
    EXPECT_EQ(OpenCheckpoint(folder.path())->tensors().size(), 1U) << target;
    fs::remove(folder.path() / "one");
  }
  for (const char* target : {"/dev/zero", "..", "nowhere"}) {
    fs::create_symlink(target, folder.path() / "one");
    ExpectOpenError(ErrorCode::kModelMissing, "one", folder.path());
    fs::remove(folder.path() / "one");
  }
}

// Others may put links into a folder that they may write to, but not decide what is read.
TEST(ShardsTest, LinksOfOthersAreNotFollowed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link another's";
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("real", OneTensor("a"));
  folder.Write(kIndex, IndexOf(R"("a":"one")"));
  const fs::path link = folder.path() / "one";
  fs::create_symlink("real", link);
  ASSERT_EQ(::lchown(link.c_str(), 1234, 1234), 0);
  ExpectOpenError(ErrorCode::kUnsafe, "a link that user 1234 made", folder.path());
  ASSERT_EQ(::chown(folder.path().c_str(), 1234, 1234), 0);
  EXPECT_EQ(OpenCheckpoint(folder.path())->tensors().size(), 1U);
}

TEST(ShardsTest, LinksOfAHuggingFaceCacheAreFollowed) {
  const TemporaryFolder cache(MemoryRoot());
  const fs::path snapshot = cache.path() / "snapshots" / "main";
  fs::create_directory(cache.path() / "blobs");
  fs::create_directories(snapshot);
  cache.Write("blobs/0a1b", OneTensor("a"));
  cache.Write("snapshots/main/" + std::string(kIndex), IndexOf(R"("a":"one")"));
  fs::create_symlink("../../blobs/0a1b", snapshot / "one");
  EXPECT_EQ(OpenCheckpoint(snapshot)->tensors().size(), 1U);
}

TEST(ShardsTest, NamesMaySayThatTheyAreOfTheFolder) {
  const TemporaryFolder folder(MemoryRoot());
  folder.Write("one", OneTensor("a"));
  folder.Write(kIndex, IndexOf(R"("a":"./one")"));
  EXPECT_EQ(OpenCheckpoint(folder.path())->tensors().size(), 1U);
  for (const char* name : {"./", "./../one", "././/one"}) {
    folder.Write(kIndex, IndexOf("\"a\":\"" + std::string(name) + "\""));
    ExpectOpenError(ErrorCode::kUnsafe, "not a plain file name", folder.path());
  }
}

struct BadIndex {
  const char* text;
  const char* message;
};

TEST(ShardsTest, BadIndexFilesAreMalformed) {
  const std::string deep = std::string(100'000, '[');
  for (const BadIndex& bad :
       {BadIndex{"", "not valid JSON"}, BadIndex{"[]", "weight_map"}, BadIndex{"{}", "weight_map"},
        BadIndex{R"({"weight_map":[]})", "weight_map"}, BadIndex{R"({"weight_map":{}})", "empty"},
        BadIndex{R"({"weight_map":{"a":1}})", "not a string"},
        BadIndex{R"({"weight_map":{"a":"x","a":"y"}})", "occurs twice"},
        BadIndex{R"({"weight_map":1e999})", "out of range"},
        BadIndex{R"({"weight_map":NaN})", "not valid JSON"},
        BadIndex{deep.c_str(), "nests deeper than 64"}}) {
    const TemporaryFolder folder(MemoryRoot());
    folder.Write(kIndex, bad.text);
    ExpectOpenError(ErrorCode::kModelMalformed, bad.message, folder.path());
  }
}

}  // namespace
}  // namespace spillway
