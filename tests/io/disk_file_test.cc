#include "src/io/disk_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "tests/io/disk_test_util.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

void WriteText(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

class DiskFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  TemporaryFolder temp_{GetParam()};
  DiskFolder folder_{temp_.path()};
};

TEST_P(DiskFileTest, ScratchHasNoNameAndIsPrivate) {
  const mode_t before = ::umask(0);
  const DiskFile file = DiskFile::CreateScratch(folder_, 1 << 20);
  ::umask(before);
  EXPECT_TRUE(fs::is_empty(temp_.path()));
  struct stat status {};
  ASSERT_EQ(::fstat(file.fd(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(status.st_size, 1 << 20);
  EXPECT_GE(status.st_blocks * 512, 1 << 20) << "not reserved";
  EXPECT_NE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_P(DiskFileTest, WritesAndReadsBack) {
  const BlockMemory out(1 << 20);
  const BlockMemory in(1 << 20);
  FillRandom(out.all(), 1);
  {
    const DiskFile file = DiskFile::CreateAt(folder_.fd(), "data", 1 << 20);
    file.WriteAt(0, out.all());
    file.Sync();
    EXPECT_FALSE(file.Changed());
  }
  for (const DiskMode mode : {DiskMode::kDirect, DiskMode::kBuffered}) {
    SCOPED_TRACE(mode == DiskMode::kDirect ? "direct" : "buffered");
    const DiskFile file = DiskFile::Open(folder_, "data", mode);
    EXPECT_EQ(file.size(), 1 << 20);
    EXPECT_EQ(file.direct(), mode == DiskMode::kDirect && file.buffered_reason().empty());
    file.ReadAt(0, in.all());
    EXPECT_TRUE(SameBytes(in.all(), out.all()));
    file.ReadAt(8192, in.Part(0, 4096));
    EXPECT_TRUE(SameBytes(in.Part(0, 4096), out.Part(8192, 4096)));
  }
}

TEST_P(DiskFileTest, ReadingBeyondTheEndIsAnError) {
  const DiskFile file = DiskFile::CreateScratch(folder_, 8192);
  const BlockMemory memory(8192);
  ExpectError(ErrorCode::kIo, "no progress", [&] { file.ReadAt(4096, memory.all()); });
}

TEST_P(DiskFileTest, NoticesAChangedFile) {
  WriteText(temp_.path() / "data", std::string(8192, 'x'));
  const DiskFile file = DiskFile::Open(folder_, "data");
  EXPECT_FALSE(file.Changed());
  fs::resize_file(temp_.path() / "data", 4096);
  EXPECT_TRUE(file.Changed());
}

TEST_P(DiskFileTest, LeavesAloneWhatHasTheName) {
  WriteText(temp_.path() / "target", "keep");
  fs::create_symlink("target", temp_.path() / "link");
  fs::create_hard_link(temp_.path() / "target", temp_.path() / "hard");
  ASSERT_EQ(::mkfifo((temp_.path() / "pipe").c_str(), 0600), 0);
  for (const char* name : {"target", "link", "hard", "pipe"}) {
    ExpectError(ErrorCode::kPath, name, [&] { DiskFile::CreateAt(folder_.fd(), name, 4096); });
  }
  EXPECT_EQ(fs::file_size(temp_.path() / "target"), 4U);
  ExpectError(ErrorCode::kPath, "symbolic link", [&] { DiskFile::Open(folder_, "link"); });
  ExpectError(ErrorCode::kModelMissing, "not a regular", [&] { DiskFile::Open(folder_, "pipe"); });
  ExpectError(ErrorCode::kModelMissing, "none", [&] { DiskFile::Open(folder_, "none"); });
}

TEST_P(DiskFileTest, NoSpaceLeavesNothingBehind) {
  const int64_t too_much = folder_.FreeBytes() + (int64_t{1} << 40);
  ExpectError(ErrorCode::kDiskSpace, "bytes of disk",
              [&] { DiskFile::CreateScratch(folder_, too_much); });
  const int64_t free = folder_.FreeBytes();
  ExpectError(ErrorCode::kDiskSpace, "data",
              [&] { DiskFile::CreateAt(folder_.fd(), "data", too_much); });
  EXPECT_TRUE(fs::is_empty(temp_.path()));
  EXPECT_GT(folder_.FreeBytes(), free / 2);
}

TEST_P(DiskFileTest, FileSizeLimitIsNoSpace) {
  std::signal(SIGXFSZ, SIG_IGN);  // as the program has it
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8192;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const BlockMemory memory(4096);
  ExpectError(ErrorCode::kDiskSpace, "File too large",
              [&] { DiskFile::CreateScratch(folder_, 1 << 20); });
  {
    const DiskFile file = DiskFile::CreateScratch(folder_, 8192);
    ExpectError(ErrorCode::kDiskSpace, "writing 4096 bytes at 8192",
                [&] { file.WriteAt(8192, memory.all()); });
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
}

INSTANTIATE_TEST_SUITE_P(Roots, DiskFileTest, ::testing::Values(kDiskRoot, kMemoryRoot),
                         [](const auto& info) { return info.index == 0 ? "disk" : "tmpfs"; });

TEST(DiskFolder, RefusesWhatIsNoSafeFolder) {
  const TemporaryFolder temp(kDiskRoot);
  const fs::path root = temp.path();
  WriteText(root / "file", "x");
  fs::create_directories(root / "real" / "below");
  fs::create_directory_symlink("real", root / "link");
  ExpectError(ErrorCode::kPath, "No such file", [&] { DiskFolder(root / "none"); });
  ExpectError(ErrorCode::kPath, "Not a directory", [&] { DiskFolder(root / "file"); });
  ExpectError(ErrorCode::kPath,
              "symbolic link, which others could redirect; give the folder that it leads to",
              [&] { DiskFolder(root / "link"); });
  EXPECT_NO_THROW(DiskFolder(root / "link", FolderTrust::kAsGiven));
  EXPECT_NO_THROW(DiskFolder(root / "real" / "below"));
  ASSERT_EQ(::chmod((root / "real").c_str(), 0777), 0);
  ExpectError(ErrorCode::kPath, "not sticky; make that one sticky (chmod +t)",
              [&] { DiskFolder(root / "real" / "below"); });
  EXPECT_NO_THROW(DiskFolder(root / "real" / "below", FolderTrust::kAsGiven));
  ASSERT_EQ(::chmod((root / "real").c_str(), 01777), 0);
  EXPECT_NO_THROW(DiskFolder(root / "real" / "below"));
}

TEST(DiskFolder, StaysTheSameWhenItsNameIsTakenByAnother) {
  const TemporaryFolder temp(kDiskRoot);
  fs::create_directory(temp.path() / "a");
  fs::create_directory(temp.path() / "b");
  const DiskFolder folder(temp.path() / "a");
  fs::rename(temp.path() / "a", temp.path() / "moved");
  fs::create_directory_symlink("b", temp.path() / "a");
  DiskFile::CreateAt(folder.fd(), "data", 4096);
  EXPECT_TRUE(fs::exists(temp.path() / "moved" / "data"));
  EXPECT_TRUE(fs::is_empty(temp.path() / "b"));
}

TEST(DiskFolder, KnowsATmpfs) {
  EXPECT_EQ(DiskFolder(TemporaryFolder(kMemoryRoot).path()).FilesystemKind(), "tmpfs");
}

}  // namespace
}  // namespace spillway::testing
