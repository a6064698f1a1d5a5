// The cache of machine files: what is found, and what is passed over with one line.
#include "src/profile/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "src/formats/machine_file.h"
#include "src/profile/profile.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProfileCache : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    machine_.name = "A Processor (R) 5";
    machine_.isa = "avx2";
    machine_.num_threads = 3;
    machine_.rates.link_bytes_per_s = {{2e9, 1e9, 0.0, 0.0}};
    machine_.rates.cpu = {3e10, {{1, 2e10}, {8, 1e11}}, 1e11, 2e10, 1e-6, {}, {}, {}, {}};
    key_ = MakeProfileKey(machine_, folder_.path());
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  // Returns what the look-up says on stderr; expects that it finds nothing.
  std::string WarningOfMiss() {
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(CachedProfile(key_));
    return ::testing::internal::GetCapturedStderr();
  }

  TemporaryFolder folder_;
  Machine machine_;
  ProfileKey key_;
};

TEST_F(ProfileCache, FindsWhatWasKept) {
  EXPECT_EQ(WarningOfMiss(), "");
  CacheProfile(CachedProfilePath(key_), machine_);
  const std::optional<Machine> found = CachedProfile(key_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rates.link_bytes_per_s[Link::kDiskRead], 2e9);
  EXPECT_EQ(found->rates.cpu.matmul.at(1).flops_per_s, 1e11);
}

TEST_F(ProfileCache, ADisturbedProfileIsMarkedAndSaysSo) {
  EXPECT_FALSE(HasQuietProfile(key_));
  machine_.disturbed = "others took 30 % of the processor";
  CacheProfile(CachedProfilePath(key_), machine_);
  EXPECT_FALSE(HasQuietProfile(key_));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(CachedProfile(key_).value().disturbed, machine_.disturbed);
  const std::string warning = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, HasSubstr("disturbed (others took 30 % of the processor)"));
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1);
  machine_.disturbed.clear();
  CacheProfile(CachedProfilePath(key_), machine_);
  EXPECT_TRUE(HasQuietProfile(key_));
}

TEST(Disturbance, IsTheProcessorsOrOfASteadyRate) {
  MeasuredMachine measured;
  measured.lines = {{"disk_read", "GB/s", 3.0, 0.5, false}, {"launch", "us", 2.0, 0.2, true}};
  EXPECT_EQ(DisturbanceOf(measured), "");
  measured.lines[1].spread = 0.4;
  EXPECT_THAT(DisturbanceOf(measured), HasSubstr("launch: the best round had 40 % more"));
  measured.processor_share = 0.8;
  EXPECT_EQ(DisturbanceOf(measured), "others took 20 % of the processor");
}

TEST_F(ProfileCache, EveryPartOfTheKeyCounts) {
  CacheProfile(CachedProfilePath(key_), machine_);
  const ProfileKey base = key_;
  key_.num_threads = 4;
  EXPECT_EQ(WarningOfMiss(), "");
  key_ = base;
  key_.isa = "amx";
  EXPECT_EQ(WarningOfMiss(), "");
  key_ = base;
  key_.disk_device += 1;
  EXPECT_EQ(WarningOfMiss(), "");
  key_ = base;
  key_.processor = "A Processor (R) 6";
  EXPECT_EQ(WarningOfMiss(), "");
}

TEST_F(ProfileCache, AnotherMachineOfTheSameFileNameIsPassedOver) {
  CacheProfile(CachedProfilePath(key_), machine_);
  key_.processor = "a-processor R 5";
  EXPECT_THAT(WarningOfMiss(), HasSubstr("is of another machine"));
}

TEST_F(ProfileCache, ADamagedFileCostsOneLine) {
  for (const std::string& text :
       {std::string("{"), std::string(), std::string("\0\1\2", 3), std::string("{\"version\":2}"),
        std::string(2 << 20, ' '), "{\"" + std::string(5000, 'x') + "\":1}"}) {
    fs::create_directories(CachedProfilePath(key_).parent_path());
    std::ofstream(CachedProfilePath(key_), std::ios::binary | std::ios::trunc) << text;
    const std::string warning = WarningOfMiss();
    EXPECT_TRUE(warning.starts_with("spillway: warning: the cached machine file is not used: "))
        << warning;
    EXPECT_EQ(std::ranges::count(warning, '\n'), 1) << warning;
    EXPECT_LE(warning.size(), 310U) << warning;
  }
}

TEST_F(ProfileCache, RelativeFoldersAreNoFolders) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  ::setenv("HOME", folder_.path().c_str(), 1);
  EXPECT_EQ(CachedProfilePath(key_).parent_path(), folder_ / ".cache" / "spillway");
  ::setenv("HOME", "relative", 1);
  EXPECT_TRUE(CachedProfilePath(key_).empty());
  EXPECT_EQ(WarningOfMiss(), "");
  ::setenv("HOME", home.c_str(), 1);
}

TEST_F(ProfileCache, AFolderThatCannotBeMadeIsRefused) {
  folder_.Write("file", "");
  ::setenv("XDG_CACHE_HOME", (folder_ / "file").c_str(), 1);
  testing::ExpectError(ErrorCode::kPath, "XDG_CACHE_HOME",
                       [&] { CacheProfile(CachedProfilePath(key_), machine_); });
}

}  // namespace
}  // namespace spillway
