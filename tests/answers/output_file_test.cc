// Files that the writer's lines go to: .part and rename, links, locks, streams, full disks.
#include "src/answers/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "tests/answers/child_process.h"
#include "tests/answers/writer_values.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

ErrorCode OpeningFails(const fs::path& path, ExistingOutput existing = ExistingOutput::kRefuse,
                       std::string* message = nullptr) {
  return CodeOf([&] { CompletionWriter(path, WriterTokens(), TestWriterOptions(existing)); },
                message);
}

void WriteOne(const fs::path& path, ExistingOutput existing = ExistingOutput::kRefuse) {
  CompletionWriter writer(path, WriterTokens(), TestWriterOptions(existing));
  writer.Expect(1);
  writer.Put(RequestOfLine(1), Answer("t", {7}));
  writer.Finish();
}

TEST(OutputFile, AnInterruptedRunKeepsItsFinishedLines) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  {
    CompletionWriter writer(path, WriterTokens(), TestWriterOptions());
    for (int64_t line = 1; line <= 4; ++line) writer.Expect(line);
    writer.Put(BadLine(4));
    writer.Put(BadLine(2));
    writer.FlushFinished();
  }
  const std::string kept = FileText(folder / "out.part");
  EXPECT_THAT(kept, HasSubstr("line 2"));
  EXPECT_LT(kept.find("line 2"), kept.find("line 4"));
  std::string message;
  EXPECT_EQ(OpeningFails(path, ExistingOutput::kRefuse, &message), ErrorCode::kOutputExists);
  EXPECT_THAT(message, HasSubstr("out.part: holds the finished lines of an interrupted run"));
  EXPECT_EQ(FileText(folder / "out.part"), kept);
  WriteOne(path, ExistingOutput::kReplace);
  EXPECT_FALSE(fs::exists(folder / "out.part"));
}

TEST(OutputFile, AnUnfinishedRunWithoutLinesLeavesNothing) {
  const TemporaryFolder folder;
  { CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions()); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  folder.Write("out.part", "");  // what kill -9 leaves before the first line
  WriteOne(folder / "out");
  EXPECT_EQ(std::ranges::count(FileText(folder / "out"), '\n'), 1);
}

TEST(OutputFile, AnEmptyInputGivesAnEmptyFile) {
  const TemporaryFolder folder;
  CompletionWriter(folder / "out", WriterTokens(), TestWriterOptions()).Finish();
  EXPECT_TRUE(fs::exists(folder / "out"));
  EXPECT_EQ(fs::file_size(folder / "out"), 0u);
}

TEST(OutputFile, AnExistingOutputIsOnlyReplacedWhenAsked) {
  const TemporaryFolder folder;
  const fs::path path = folder.Write("out", "old");
  EXPECT_EQ(OpeningFails(path), ErrorCode::kOutputExists);
  EXPECT_EQ(FileText(path), "old");
  {
    CompletionWriter writer(path, WriterTokens(), TestWriterOptions(ExistingOutput::kReplace));
    EXPECT_EQ(FileText(path), "old");  // until Commit
  }
  EXPECT_EQ(FileText(path), "old");
  WriteOne(path, ExistingOutput::kReplace);
  EXPECT_NE(FileText(path), "old");
  EXPECT_FALSE(fs::exists(folder / "out.part"));
}

TEST(OutputFile, AFileThatAppearsMeanwhileIsNotReplaced) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
  writer.Expect(1);
  writer.Put(BadLine(1));
  folder.Write("out", "another's");
  std::string message;
  EXPECT_EQ(CodeOf([&] { writer.Finish(); }, &message), ErrorCode::kOutputExists);
  EXPECT_THAT(message, HasSubstr("the lines are in out.part"));
  EXPECT_EQ(FileText(folder / "out"), "another's");
  EXPECT_THAT(FileText(folder / "out.part"), HasSubstr("line 1"));
}

TEST(OutputFile, TwoRunsDoNotShareAnOutput) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
  EXPECT_EQ(OpeningFails(folder / "out"), ErrorCode::kRunInUse);
  EXPECT_EQ(OpeningFails(folder / "out", ExistingOutput::kReplace), ErrorCode::kRunInUse);
  writer.Finish();
}

TEST(OutputFile, RefusesPathsAtOnce) {
  const TemporaryFolder folder;
  std::string message;
  EXPECT_EQ(OpeningFails(folder / "missing/out", ExistingOutput::kRefuse, &message),
            ErrorCode::kPath);
  EXPECT_THAT(message, HasSubstr("missing: cannot be written: No such file"));
  EXPECT_EQ(OpeningFails(folder.path()), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.path(), ExistingOutput::kReplace), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.path().string() + "/"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.Write("file", "") / "out"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder / std::string(300, 'n')), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(""), ErrorCode::kPath);
}

TEST(OutputFile, NeverWritesThroughALink) {
  const TemporaryFolder folder;
  const fs::path victim = folder.Write("victim", "precious");
  fs::create_symlink(victim, folder / "out");
  EXPECT_EQ(OpeningFails(folder / "out"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder / "out", ExistingOutput::kReplace), ErrorCode::kPath);
  fs::create_symlink(victim, folder / "two.part");
  EXPECT_EQ(OpeningFails(folder / "two", ExistingOutput::kReplace), ErrorCode::kPath);
  fs::create_symlink(folder / "nowhere", folder / "three");
  EXPECT_EQ(OpeningFails(folder / "three"), ErrorCode::kPath);
  fs::create_hard_link(victim, folder / "four.part");
  WriteOne(folder / "four",
           ExistingOutput::kReplace);  // the name goes away, not the file behind it
  ASSERT_EQ(::mkfifo((folder / "five.part").c_str(), 0600), 0);
  EXPECT_EQ(OpeningFails(folder / "five", ExistingOutput::kReplace), ErrorCode::kPath);
  EXPECT_EQ(FileText(victim), "precious");
}

TEST(OutputFile, TheModeFollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(077);
  WriteOne(folder / "private");
  ::umask(022);
  WriteOne(folder / "shared");
  ::umask(before);
  EXPECT_EQ(fs::status(folder / "private").permissions(), fs::perms(0600));
  EXPECT_EQ(fs::status(folder / "shared").permissions(), fs::perms(0644));
}

TEST(OutputFile, StreamsAreWrittenInPlace) {
  const TemporaryFolder folder;
  WriteOne("/dev/null");
  EXPECT_FALSE(fs::exists("/dev/null.part"));
  const fs::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  WriteOne(fifo);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(::read(reader, text.data(), text.size())));
  ::close(reader);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_FALSE(fs::exists(folder / "fifo.part"));
  CompletionWriter full("/dev/full", WriterTokens(), TestWriterOptions());
  full.Expect(1);
  EXPECT_EQ(CodeOf([&] { full.Put(BadLine(1)); }), ErrorCode::kDiskSpace);
}

// A thousand lines to standard output, 150 bytes each.
int WriteToStdout() {
  CompletionWriter writer("-", WriterTokens(), TestWriterOptions());
  for (int64_t line = 1; line <= 1000; ++line) {
    writer.Expect(line);
    writer.Put(BadLine(line));
  }
  writer.Finish();
  return 0;
}

TEST(OutputFile, StandardOutputFaultsAreErrors) {
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_EQ(InChild(full, WriteToStdout), 32);
  ::close(full);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(InChild(ends[1], WriteToStdout), 40);
  ::close(ends[1]);
  EXPECT_EQ(InChild(-1,
                    [] {
                      ::close(STDOUT_FILENO);
                      return WriteToStdout();
                    }),
            40);
}

TEST(OutputFile, ASlowNonBlockingPipeGetsEveryLine) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, 0), 0);
  ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(InChild(ends[1], WriteToStdout));
  }
  ::close(ends[1]);
  std::string text;
  char buffer[1000];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(std::ranges::count(text, '\n'), 1000);
}

TEST(OutputFile, AFullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  const int status = InChild(-1, [&] {
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    for (int64_t line = 1; line <= 100; ++line) {
      writer.Expect(line);
      writer.Put(BadLine(line));
    }
    return 0;
  });
  EXPECT_EQ(status, 32);
  const std::string text = FileText(folder / "out.part");
  EXPECT_GT(text.size(), 500u);
  EXPECT_LE(text.size(), 1000u);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// A disk that becomes full while nothing but answers behind a gap is on it.
TEST(OutputFile, AnswersBehindAGapOutliveAFullDisk) {
  const TemporaryFolder folder;
  const int status = InChild(-1, [&] {
    const rlimit limit{2000, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    writer.Begin({{"input", "aa"}});
    for (int64_t line = 1; line <= 1000; ++line) writer.Expect(line);
    for (int64_t line = 2; line <= 1000; ++line) {
      writer.Put(RequestOfLine(line), Answer("t", {2}));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return 0;
  });
  EXPECT_EQ(status, 32);
  EXPECT_EQ(fs::file_size(folder / "out.part"), 0u);
  CompletionWriter writer(folder / "out", WriterTokens(),
                          TestWriterOptions(ExistingOutput::kResume));
  writer.Begin({{"input", "aa"}});
  EXPECT_GE(writer.earlier().num_completions, 1);
}

TEST(OutputFile, ADiskWithoutRoomForTheFirstAnswerIsLeftEmpty) {
  const TemporaryFolder folder;
  const int status = InChild(-1, [&] {
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    writer.Begin({{"input", "aa"}});
    for (int64_t line = 1; line <= 2; ++line) writer.Expect(line);
    const rlimit full{0, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &full);
    return CodeOf([&] {
             writer.Put(RequestOfLine(2), Answer("t", {2}));
             writer.FlushFinished();
           }) == ErrorCode::kDiskSpace
               ? 0
               : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// A second write, or a second fsync, may claim success for what the disk has lost.
TEST(OutputFile, AfterAFailedWriteNothingIsWrittenAgain) {
  const TemporaryFolder folder;
  const int status = InChild(-1, [&] {
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    for (int64_t line = 1; line <= 3; ++line) writer.Expect(line);
    writer.Put(BadLine(3));
    writer.Put(BadLine(1));
    const auto kept = static_cast<rlim_t>(fs::file_size(folder / "out.part"));
    const rlimit full{kept + 10, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &full);
    if (CodeOf([&] { writer.Put(BadLine(2)); }) != ErrorCode::kDiskSpace) return 1;
    const rlimit roomy{RLIM_INFINITY, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &roomy);
    writer.FlushFinished();
    return fs::file_size(folder / "out.part") == kept ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST(OutputFile, TooManyOpenFilesAreALimitNotAWrongPath) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs descriptors itself";
#endif
  const TemporaryFolder folder;
  for (const char* name : {"out", "-", "/dev/null"}) {
    const int status = InChild(-1, [&] {
      const rlimit none{3, 3};
      ::setrlimit(RLIMIT_NOFILE, &none);
      WriteOne(std::string_view(name) == "out" ? folder / name : fs::path(name),
               ExistingOutput::kReplace);
      return 0;
    });
    EXPECT_EQ(status, 33) << name;
  }
}

}  // namespace
}  // namespace spillway
