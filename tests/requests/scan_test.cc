#include "src/requests/scan.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <xxhash.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "src/requests/input_file.h"
#include "src/requests/reader.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;

ReaderOptions Options() {
  ReaderOptions options = OptionsFor(100);
  options.defaults.max_tokens = 10;
  return options;
}

std::string FiveLines() {
  return "{\"prompt\":\"abc\"}\n\n{\"prompt\":\"a\",\"max_tokens\":50}\nbad\r\n "
         "\n{\"token_ids\":[1]}\n{\"prompt\":\"abcdef\"}";
}

TEST(ScanInput, KnowsASmallFileExactly) {
  const TemporaryFolder folder;
  const std::string bytes = FiveLines();
  const InputScan scan =
      ScanInput(folder.Write("in.jsonl", bytes), FakeTokenizer(), Options(), 100);
  EXPECT_EQ(scan.num_lines, 5);
  EXPECT_EQ(scan.num_blank_lines, 2);
  EXPECT_EQ(scan.num_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(scan.hash, XXH64(bytes.data(), bytes.size(), 0));
  ASSERT_EQ(scan.sample.size(), 4u);
  EXPECT_EQ(scan.sample[0].prompt_tokens, 4);
  EXPECT_EQ(scan.sample[0].max_new_tokens, 10);
  EXPECT_EQ(scan.sample[1].max_new_tokens, 50);
  EXPECT_EQ(scan.sample[2].prompt_tokens, 1);
  EXPECT_EQ(scan.num_requests, 4);
  EXPECT_EQ(scan.max_prompt_tokens, 7);
  EXPECT_EQ(scan.max_row_tokens, 52);
  EXPECT_EQ(scan.longest_line, 3);
  EXPECT_EQ(scan.num_prompt_tokens, 4 + 2 + 1 + 7);
  EXPECT_EQ(scan.num_new_tokens, 3 * 10 + 50);
  ASSERT_EQ(scan.bad_lines.size(), 1u);
  EXPECT_EQ(scan.bad_lines[0].num_lines, 1);
  EXPECT_THAT(scan.bad_lines[0].first, HasSubstr("line 4: "));
}

TEST(ScanInput, CountsLinesThatCannotRunByReason) {
  const TemporaryFolder folder;
  const std::string bytes =
      "{\"prompt\":5}\n{\"prompt\":\"a\"}\nbad\n{\"prompt\":[]}\n{\"prompt\":{}}\n";
  const InputScan scan = ScanInput(folder.Write("in.jsonl", bytes), FakeTokenizer(), Options(), 4);
  ASSERT_GE(scan.bad_lines.size(), 2u);
  EXPECT_THAT(scan.bad_lines[0].first, HasSubstr("line 1: "));
  EXPECT_GE(scan.bad_lines[0].num_lines, 2);
  EXPECT_EQ(scan.bad_lines[1].code, "invalid_json");
  EXPECT_THAT(scan.bad_lines[1].first, HasSubstr("line 3: "));
  int64_t num_bad = 0;
  for (const BadLines& bad : scan.bad_lines) num_bad += bad.num_lines;
  EXPECT_EQ(num_bad, 4);
}

// However many there are, the longest is known, and the sample is spread over all of them.
TEST(ScanInput, SamplesALargeFileEvenly) {
  const TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 1000; ++line) {
    text += "{\"token_ids\":[1],\"max_tokens\":" + std::to_string(1 + line % 50) + "}\n";
    if (line == 777) text += "bad\n{\"prompt\":\"abcdef\",\"max_tokens\":90}\n";
  }
  const InputScan scan = ScanInput(folder.Write("in.jsonl", text), FakeTokenizer(), Options(), 8);
  EXPECT_EQ(scan.num_lines, 1002);
  EXPECT_EQ(scan.num_requests, 1001);
  EXPECT_EQ(scan.max_prompt_tokens, 7);
  EXPECT_EQ(scan.max_row_tokens, 97);
  ASSERT_EQ(scan.sample.size(), 8u);  // every 128th
  for (int64_t at = 0; at <= 6; ++at)
    EXPECT_EQ(scan.sample[static_cast<size_t>(at)].max_new_tokens, 1 + 128 * at % 50);
  EXPECT_EQ(ScanInput(folder.Write("none", ""), FakeTokenizer(), Options(), 2).num_lines, 0);
}

TEST(ScanInput, LinesThatAreTooLongNeverRun) {
  const TemporaryFolder folder;
  ReaderOptions options = Options();
  options.max_line_bytes = 400;
  const std::string text = "ab\n" + std::string(500, 'x') + "\n";
  const InputScan scan = ScanInput(folder.Write("in.txt", text), FakeTokenizer(), options, 2);
  EXPECT_EQ(scan.num_lines, 2);
  EXPECT_EQ(scan.num_requests, 1);
  EXPECT_EQ(scan.max_prompt_tokens, 3);
}

TEST(SameFile, GoesByInode) {
  const TemporaryFolder folder;
  const auto input = folder.Write("in", "x");
  std::filesystem::create_symlink(input, folder / "link");
  std::filesystem::create_hard_link(input, folder / "hard");
  std::filesystem::create_hard_link(input, folder / "out.part");
  EXPECT_TRUE(SameFile(input, input));
  EXPECT_TRUE(SameFile(input, folder / "link"));
  EXPECT_TRUE(SameFile(folder / "link", folder / "hard"));
  EXPECT_TRUE(SameFile(input, folder.path() / "." / "in"));
  EXPECT_TRUE(SameFile(input, folder / "out"));  // by the .part it would replace
  EXPECT_FALSE(SameFile(input, folder / "other"));
  EXPECT_FALSE(SameFile(folder / "other", folder / "other"));
  EXPECT_FALSE(SameFile("/dev/null", "/dev/null"));
}

// Feeds standard input from another thread while `action` runs, and puts the old one back.
void WithStdin(const std::function<void(int)>& feed, const std::function<void()>& action) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const int old = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  std::thread feeder([&] {
    feed(ends[1]);
    ::close(ends[1]);
  });
  action();
  feeder.join();
  ::dup2(old, STDIN_FILENO);
  ::close(old);
}

void Send(int pipe, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::write(pipe, bytes.data(), bytes.size());
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

TEST(StageStdin, CopiesAndLeavesNoName) {
  const TemporaryFolder folder;
  WithStdin([](int pipe) { Send(pipe, FiveLines()); },
            [&] {
              const StagedInput staged = StageInput("-", folder.path());
              EXPECT_EQ(staged.num_bytes(), static_cast<int64_t>(FiveLines().size()));
              EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
              const FakeTokenizer tokenizer;
              for (int pass = 0; pass < 2; ++pass) {
                EXPECT_EQ(ScanInput(staged.path(), tokenizer, Options(), 2).num_lines, 5) << pass;
              }
              RequestReader reader(staged.path(), tokenizer, Options());
              int num_lines = 0;
              while (reader.Next()) ++num_lines;
              EXPECT_EQ(num_lines, 5);
            });
}

TEST(StageStdin, NamesAFolderThatCannotHoldIt) {
  WithStdin([](int) {},
            [] {
              try {
                StageInput("-", "/nonexistent/folder");
                ADD_FAILURE();
              } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::kPath);
                EXPECT_THAT(error.what(), HasSubstr("/nonexistent/folder: cannot hold a copy"));
              }
            });
}

// Bytes by which memory may grow. One sanitizer keeps what was freed, up to its quarantine; the
// other keeps four bytes for each.
constexpr int64_t Growth(int64_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  bytes += 400 << 20;
#elif defined(__SANITIZE_THREAD__)
  bytes *= 6;
#endif
  return bytes;
}

int64_t PeakBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST(RequestReader, MemoryIsBoundedForALineWithoutEnd) {
  constexpr int64_t kLineBytes = 200 << 20;
  WithStdin(
      [](int pipe) {
        const std::string chunk(1 << 20, 'x');
        for (int64_t sent = 0; sent < kLineBytes; sent += 1 << 20) Send(pipe, chunk);
        Send(pipe, "\n{\"prompt\":\"a\"}");
      },
      [] {
        const FakeTokenizer tokenizer;
        const int64_t before = PeakBytes();
        RequestReader reader("-", tokenizer, Options());
        EXPECT_EQ(std::get<LineError>(*reader.Next()).message,
                  "line 1: has 209715200 bytes; at most 16777216 are taken");
        EXPECT_EQ(std::get<Request>(*reader.Next()).line, 2);
        EXPECT_FALSE(reader.Next().has_value());
        EXPECT_LT(PeakBytes() - before,
                  Growth(64 << 20));  // the limit of a line twice, while its buffer grows
      });
}

TEST(RequestReader, MemoryDoesNotGrowWithTheNumberOfLines) {
  WithStdin(
      [](int pipe) {
        std::string chunk;
        for (int line = 0; line < 1000; ++line) chunk += "{\"prompt\":\"abc\",\"max_tokens\":3}\n";
        for (int repeat = 0; repeat < 200; ++repeat) Send(pipe, chunk);
      },
      [] {
        const FakeTokenizer tokenizer;
        RequestReader reader("-", tokenizer, Options());
        for (int line = 0; line < 10'000; ++line) reader.Next();
        const int64_t before = PeakBytes();
        int64_t num_lines = 10'000;
        while (reader.Next()) ++num_lines;
        EXPECT_EQ(num_lines, 200'000);
        EXPECT_LT(PeakBytes() - before, Growth(4 << 20));
      });
}

}  // namespace
}  // namespace spillway
