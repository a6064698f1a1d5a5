#include "src/store/hub_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "src/store/open_model.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;

class HubCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
    fs::create_directories(root_ / "refs");
    fs::create_directories(root_ / "snapshots" / "abc123");
    folder_.Write("models--me--tales/refs/main", "abc123\n");
  }
  void TearDown() override { ::unsetenv("HF_HUB_CACHE"); }

  // Puts the bundled model there.
  void FillSnapshot() {
    for (const fs::directory_entry& file : fs::directory_iterator(BundledModel()))
      fs::create_symlink(file.path(), root_ / "snapshots" / "abc123" / file.path().filename());
  }

  static OpenedModel Open(const std::string& name) {
    ModelChoice choice;
    choice.model = name;
    return OpenModel(choice);
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "models--me--tales";
};

TEST_F(HubCacheTest, NamesAreAnOwnerAndAModel) {
  for (const char* name : {"facebook/opt-125m", "a/b", "Qwen/Qwen2.5-0.5B_x"})
    EXPECT_TRUE(IsHubName(name)) << name;
  for (const char* name : {"opt-125m", "/opt", "a/", "a/b/c", "./b", "a/../b", "a b/c", "a/.b", ""})
    EXPECT_FALSE(IsHubName(name)) << name;
}

TEST_F(HubCacheTest, TheSnapshotOfRefsMainIsTaken) {
  fs::create_directories(root_ / "snapshots" / "other");
  EXPECT_EQ(FindCachedModel("me/tales")->folder, root_ / "snapshots" / "abc123");
  EXPECT_EQ(FindCachedModel("me/tales")->name, "tales");
  EXPECT_EQ(SnapshotIn(root_)->folder, root_ / "snapshots" / "abc123");
  EXPECT_FALSE(FindCachedModel("me/other"));
  EXPECT_FALSE(SnapshotIn(folder_.path()));
}

TEST_F(HubCacheTest, WithoutRefsMainTheOnlySnapshotIsTaken) {
  fs::remove(root_ / "refs" / "main");
  EXPECT_EQ(SnapshotIn(root_)->folder, root_ / "snapshots" / "abc123");
  fs::create_directories(root_ / "snapshots" / "other");
  ExpectError(ErrorCode::kModelMissing, "give one of the folders in its snapshots",
              [&] { SnapshotIn(root_); });
}

TEST_F(HubCacheTest, ARevisionDoesNotLeaveTheFolder) {
  fs::create_directories(root_ / "snapshots" / "other");
  for (const char* text : {"../../..", "/etc", "", "a/b"}) {
    folder_.Write("models--me--tales/refs/main", text);
    EXPECT_THROW(SnapshotIn(root_), Error) << text;
  }
}

TEST_F(HubCacheTest, TheVariablesOfTheHubSayWhereItsCacheIs) {
  ::unsetenv("HF_HUB_CACHE");
  const fs::path home = folder_.path() / "home";
  fs::create_directories(home);
  fs::create_symlink(folder_.path(), home / "hub");
  ::setenv("HF_HOME", home.c_str(), 1);
  EXPECT_TRUE(FindCachedModel("me/tales"));
  ::unsetenv("HF_HOME");
}

TEST_F(HubCacheTest, ACachedModelIsOpenedByItsName) {
  FillSnapshot();
  for (const std::string& name : {std::string("me/tales"), root_.string()}) {
    const OpenedModel model = Open(name);
    EXPECT_EQ(model.folder, root_ / "snapshots" / "abc123");
    EXPECT_EQ(model.shape.name, "tales");
  }
}

TEST_F(HubCacheTest, NamesThatSayMoreMeanTheSame) {
  for (const char* name :
       {"me/tales/", "me/tales@main", "https://huggingface.co/me/tales", "huggingface.co/me/tales/",
        "https://huggingface.co/me/tales/tree/main", "hf.co/me/tales", "hf://me/tales"}) {
    EXPECT_EQ(PlaceOfModel(name).folder, root_ / "snapshots" / "abc123") << name;
    std::string absent = name;
    absent.replace(absent.find("me/tales"), 8, "me/absent");
    ExpectError(ErrorCode::kModelMissing, "run hf download me/absent first", [&] { Open(absent); });
  }
  EXPECT_EQ(PlaceOfModel("me/tales@abc123").folder, root_ / "snapshots" / "abc123");
  for (const char* revision : {"v2", "refs/pr/1"}) {
    const std::string name = std::string("me/tales@") + revision;
    EXPECT_FALSE(FindReferenced(name)) << name;
    ExpectError(ErrorCode::kModelMissing,
                std::string("hf download me/tales --revision ") + revision + " first, and give",
                [&] { Open(name); });
  }
}

TEST_F(HubCacheTest, ALinkIntoAClearedCacheIsNamed) {
  FillSnapshot();
  const fs::path weights = root_ / "snapshots" / "abc123" / "model.safetensors";
  fs::remove(weights);
  fs::create_symlink("../../blobs/gone", weights);
  ExpectError(ErrorCode::kModelMissing,
              "model.safetensors: a link to what is not there; download the model again",
              [] { Open("me/tales"); });
  fs::remove(weights);
  fs::create_symlink(BundledModel() / "model.safetensors", weights);
  EXPECT_NO_THROW(Open("me/tales"));
  const fs::path tokenizer = weights.parent_path() / "tokenizer.json";
  fs::create_symlink("../../blobs/gone", tokenizer);
  ExpectError(ErrorCode::kModelMissing, "its link leads nowhere, so download the model again",
              [] { Open("me/tales"); });
}

TEST_F(HubCacheTest, WhatIsNotThereIsNotFetched) {
  ExpectError(ErrorCode::kModelMissing, "hf download me/absent first", [] { Open("me/absent"); });
  ExpectError(ErrorCode::kModelMissing, "the nearest are", [] { Open("opt-126m"); });
  ExpectError(ErrorCode::kModelMissing, "No such file", [] { Open("/absent/folder"); });
}

}  // namespace
}  // namespace spillway
