#include "src/store/write_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "src/store/part_folder.h"
#include "tests/store/store_test_util.h"
#include "tests/trace_case.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

class WriteStoreTest : public ::testing::Test {
 protected:
  fs::path store() const { return temp_.path() / "small"; }
  fs::path part() const { return temp_.path() / "small.part"; }
  void ExpectNothingLeft() const { EXPECT_TRUE(fs::is_empty(temp_.path())); }
  void ExpectGood() const { ReadWholeStore(OpenStore(store())); }

  TemporaryFolder temp_{kDiskRoot};
};

TEST_F(WriteStoreTest, OneTileOfStagingIsEnough) {
  const StoreJob job = SmallJob();
  const BlockMemory staging(StoreTileBytes(job.model));
  DiskQueue queue(MakeBackend(DiskBackendKind::kThreads, {}, ""));
  WriteStore(job, store().string() + "/", queue, staging.all());
  ExpectGood();
}

TEST_F(WriteStoreTest, TellsItsProgress) {
  StoreJob job = SmallJob();
  int64_t last = 0;
  int64_t all = 0;
  job.progress = [&](int64_t done, int64_t total) {
    EXPECT_GT(done, last);
    last = done;
    all = total;
  };
  MakeStore(job, store());
  EXPECT_EQ(last, all);
  EXPECT_EQ(static_cast<uint64_t>(all), fs::file_size(store() / "weights.bin"));
}

TEST_F(WriteStoreTest, AFailingSourceLeavesNothing) {
  for (const int fails_at : {0, 1, 2, 20}) {
    StoreJob job = SmallJob();
    int calls = 0;
    job.fill = [&](const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
      if (calls++ == fails_at) throw Error(ErrorCode::kInterrupted, "stop");
      FillRows(tensor, rows, out);
    };
    ExpectError(ErrorCode::kInterrupted, "stop", [&] { MakeStore(job, store()); });
    ExpectNothingLeft();
  }
}

TEST_F(WriteStoreTest, AFailingDiskLeavesNothing) {
  ExpectError(ErrorCode::kIo, "weights.bin: writing",
              [&] { MakeStore(SmallJob(), store(), "write:error=5@4"); });
  ExpectError(ErrorCode::kDiskSpace, "weights.bin: writing",
              [&] { MakeStore(SmallJob(), store(), "write:error=28@2"); });
  ExpectNothingLeft();
}

TEST_F(WriteStoreTest, ALostWriteIsFoundByTheReader) {
  MakeStore(SmallJob(), store(), "write:lost@5");
  const Store opened = OpenStore(store());
  ExpectError(ErrorCode::kCorrupt, "tile", [&] { ReadWholeStore(opened); });
}

TEST_F(WriteStoreTest, NoSpaceIsKnownBeforeTheFirstByte) {
  StoreJob job = SmallJob();
  job.model = MakeModel(*BuiltInShape("opt-175b"));  // 350 GB
  job.fill = [](const auto&, RowRange, std::span<std::byte>) { FAIL() << "asked for rows"; };
  const TemporaryFolder small(kMemoryRoot);
  ExpectError(ErrorCode::kDiskSpace, "weights.bin: needs",
              [&] { MakeStore(job, small.path() / "large"); });
  EXPECT_TRUE(fs::is_empty(small.path()));
}

TEST_F(WriteStoreTest, ReplacesOnlyAStoreAndOnlyWhenAsked) {
  StoreJob job = SmallJob();
  MakeStore(job, store());
  ExpectError(ErrorCode::kOutputExists, "--overwrite", [&] { MakeStore(job, store()); });
  job.replace = true;
  job.content_key = "new";
  MakeStore(job, store());
  EXPECT_EQ(OpenStore(store()).content_key(), "new");
  ExpectGood();
  EXPECT_FALSE(fs::exists(part()));
  fs::remove(store() / "store.json");  // half a store is replaced too
  MakeStore(job, store());
  ExpectGood();

  fs::create_directory(temp_.path() / "own");
  WriteText(temp_.path() / "own" / "letter", "keep");
  ExpectError(ErrorCode::kOutputExists, "not a converted model",
              [&] { MakeStore(job, temp_.path() / "own"); });
  WriteText(temp_.path() / "file", "keep");
  ExpectError(ErrorCode::kOutputExists, "file", [&] { MakeStore(job, temp_.path() / "file"); });
  EXPECT_EQ(ReadText(temp_.path() / "own" / "letter"), "keep");
}

TEST_F(WriteStoreTest, AReaderKeepsTheStoreThatIsReplaced) {
  StoreJob job = SmallJob();
  MakeStore(job, store());
  const Store opened = OpenStore(store());
  job.replace = true;
  MakeStore(job, store());
  ReadWholeStore(opened);
}

TEST_F(WriteStoreTest, PlantedNamesAreLeftAlone) {
  const TemporaryFolder target(kDiskRoot);
  fs::create_directory_symlink(target.path(), part());
  ExpectError(ErrorCode::kPath, "small.part", [&] { MakeStore(SmallJob(), store()); });
  EXPECT_TRUE(fs::is_empty(target.path()));
  fs::remove(part());
  ExpectError(ErrorCode::kPath, "No such file",
              [&] { MakeStore(SmallJob(), temp_.path() / "none" / "small"); });
  ExpectError(ErrorCode::kPath, "no name", [&] { MakeStore(SmallJob(), "/"); });
}

TEST_F(WriteStoreTest, OneProcessConverts) {
  fs::create_directory(part());
  const Descriptor other(::open(part().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  WriteText(part() / "weights.bin", "of the other");
  ExpectError(ErrorCode::kRunInUse, "another process", [&] { MakeStore(SmallJob(), store()); });
  EXPECT_EQ(ReadText(part() / "weights.bin"), "of the other");
  ::flock(other.get(), LOCK_UN);
  MakeStore(SmallJob(), store());  // what a killed one left is taken over
  ExpectGood();
}

TEST_F(WriteStoreTest, ManyConvertersMakeOneStore) {
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 6; ++thread) {
    threads.emplace_back([&] {
      try {
        // No rings: ThreadSanitizer does not see that one is unmapped before the next is mapped.
        const BlockMemory staging(StoreTileBytes(MakeModel(SmallShape())));
        DiskQueue queue(MakeBackend(DiskBackendKind::kThreads, {}, ""));
        WriteStore(SmallJob(), store(), queue, staging.all());
        ++made;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kRunInUse ||
                    error.code() == ErrorCode::kOutputExists)
            << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  ExpectGood();
  EXPECT_FALSE(fs::exists(part()));
}

// A child converts and is killed: at its n-th tile, or whenever the clock says.
void ConvertInChild(const fs::path& store, int kill_at, useconds_t kill_after_us) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StoreJob job = SmallJob();
    int calls = 0;
    job.replace = true;
    job.fill = [&](const StoredTensorTable& tensor, RowRange rows, std::span<std::byte> out) {
      if (calls++ == kill_at) ::raise(SIGKILL);
      FillRows(tensor, rows, out);
    };
    MakeStore(job, store);
    ::_exit(0);
  }
  if (kill_after_us > 0) {
    ::usleep(kill_after_us);
    ::kill(child, SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
}

TEST_F(WriteStoreTest, KilledAtAnyTileLeavesNoStore) {
  for (const int kill_at : {0, 1, 2, 5, 30}) {
    SCOPED_TRACE(CaseOf("killed at tile", kill_at));
    ConvertInChild(store(), kill_at, 0);
    EXPECT_FALSE(fs::exists(store()));
    EXPECT_EQ(ProbeStore(store(), "0123456789abcdef"), StoreState::kAbsent);
    EXPECT_EQ(ProbeStore(part(), "0123456789abcdef"), StoreState::kUnusable);
  }
  MakeStore(SmallJob(), store());
  ExpectGood();
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(WriteStoreTest, PartsOfKilledRunsAreRemoved) {
  const fs::path run_part = temp_.path() / "spillway-0123.store.part";
  ConvertInChild(temp_.path() / "spillway-0123.store", 2, 0);
  ASSERT_TRUE(fs::exists(run_part));
  ConvertInChild(store(), 2, 0);  // one that somebody asked for by name
  const fs::path model = temp_.path() / "spillway-mine.store.part";
  fs::create_directory(model);
  std::ofstream(model / "notes.txt") << "mine";
  {
    const PartFolder held(temp_.path() / "spillway-held.store", false);
    RemoveStaleParts(temp_.path());
    EXPECT_TRUE(fs::exists(temp_.path() / "spillway-held.store.part"));
  }
  EXPECT_FALSE(fs::exists(run_part));
  EXPECT_TRUE(fs::exists(part()));
  EXPECT_TRUE(fs::exists(model / "notes.txt"));
  RemoveStaleParts(temp_.path() / "absent");
}

TEST_F(WriteStoreTest, KilledAtAnyTimeLeavesAWholeStoreOrNone) {
  for (useconds_t after_us = 1000; after_us < 60'000; after_us += 3700) {
    SCOPED_TRACE(CaseOf("killed after us", after_us));
    ConvertInChild(store(), -1, after_us);
    const StoreState state = ProbeStore(store(), "0123456789abcdef");
    EXPECT_TRUE(state == StoreState::kAbsent || state == StoreState::kReady);
    if (state == StoreState::kReady) ExpectGood();
  }
}

}  // namespace
}  // namespace spillway::testing
