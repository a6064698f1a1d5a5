#include "src/requests/writer.h"

#include <algorithm>
#include <csignal>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spillway/error.h"
#include "src/requests/fingerprint.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

const FakeTokenizer& Tokens() {
  static const FakeTokenizer tokenizer({" the", "é", "é", "\xe2\x82"});
  return tokenizer;
}

WriterOptions Options(bool overwrite = false) { return {"tales", 0xabcd, overwrite}; }

Request Line(int64_t line) {
  Request request;
  request.line = line;
  request.custom_id = "id-" + std::to_string(line);
  return request;
}

Completion Answer(std::string text, std::vector<TokenId> tokens) {
  Completion completion;
  completion.text = std::move(text);
  completion.tokens = std::move(tokens);
  completion.num_prompt_tokens = 5;
  return completion;
}

LineError BadLine(int64_t line) { return {line, "", "invalid_json", "line " + std::to_string(line) + ": column 2: bad"}; }

ErrorCode CodeOf(const std::function<void()>& action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kInternal;
}

ErrorCode OpeningFails(const fs::path& path, bool overwrite = false, std::string* message = nullptr) {
  return CodeOf([&] { CompletionWriter(path, Tokens(), Options(overwrite)); }, message);
}

void WriteOne(const fs::path& path, bool overwrite = false) {
  CompletionWriter writer(path, Tokens(), Options(overwrite));
  writer.Expect(1);
  writer.Put(Line(1), Answer("t", {7}));
  writer.Commit();
}

TEST(CompletionWriter, WritesTheDocumentedLines) {
  const TemporaryFolder folder;
  {
    CompletionWriter writer(folder / "out.jsonl", Tokens(), Options());
    writer.Expect(1);
    writer.Expect(3);
    writer.Put(Line(1), Answer("a\n\"é\"", {7, 8, 2}));
    writer.Put(BadLine(3));
    EXPECT_FALSE(fs::exists(folder / "out.jsonl"));
    EXPECT_EQ(writer.part_path(), folder / "out.jsonl.part");
    writer.Commit();
    EXPECT_EQ(writer.num_completions(), 1);
    EXPECT_EQ(writer.num_errors(), 1);
  }
  EXPECT_EQ(FileText(folder / "out.jsonl"),
            R"({"id":"batch_req_000000000000abcd_1","custom_id":"id-1","response":{"status_code":200,)"
            R"("request_id":"req_000000000000abcd_1","body":{"object":"text_completion","model":"tales","choices":)"
            R"([{"index":0,"text":"a\n\"é\"","token_ids":[7,8,2],"finish_reason":"length","logprobs":null}],"usage":)"
            R"({"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}},"error":null})"
            "\n"
            R"({"id":"batch_req_000000000000abcd_3","custom_id":"3","response":null,"error":)"
            R"({"code":"invalid_json","message":"line 3: column 2: bad"}})"
            "\n");
  EXPECT_FALSE(fs::exists(folder / "out.jsonl.part"));
}

TEST(CompletionWriter, LinesAreValidJsonWhateverTheyHold) {
  const TemporaryFolder folder;
  const std::string nasty = std::string("\0\x01\x1b[2J\x7f\\\"/\r\n\u2028\U0001F600", 19) + "\xff\xc3";
  {
    CompletionWriter writer(folder / "out", Tokens(), {nasty, 1, false});
    writer.Expect(1);
    writer.Expect(2);
    Request request = Line(1);
    request.custom_id = nasty;
    writer.Put(request, Answer(nasty, {}));
    writer.Put(LineError{2, nasty, nasty, nasty});
    writer.Commit();
  }
  const std::string text = FileText(folder / "out");
  EXPECT_EQ(std::ranges::count(text, '\n'), 2);
  const std::size_t end = text.find('\n');
  const std::string fixed = nasty.substr(0, nasty.size() - 2) + "\uFFFD\uFFFD";
  EXPECT_EQ(json::parse(text.substr(0, end))["response"]["body"]["choices"][0]["text"], fixed);
  EXPECT_EQ(json::parse(text.substr(end + 1))["custom_id"], fixed);
}

TEST(CompletionWriter, LogprobsHaveOpenAisForm) {
  const TemporaryFolder folder;
  const TokenId the = FakeTokenizer::Piece(0);
  const TokenId half = FakeTokenizer::Piece(3);
  {
    CompletionWriter writer(folder / "out", Tokens(), Options());
    writer.Expect(1);
    Request request = Line(1);
    request.sampling.num_logprobs = 2;
    Completion completion = Answer("x", {the, half, FakeTokenizer::kEnd});
    completion.finish_reason = FinishReason::kStop;
    // The chosen one is among the best; is beyond them; two ids of one text, the chosen's of no chance at all.
    completion.logprobs = {
        {-0.5F, {{the, -0.5F}, {half, -1.25F}}},
        {-3.0F, {{the, -0.25F}, {FakeTokenizer::Byte('\n'), -2.0F}}},
        {-std::numeric_limits<float>::infinity(), {{FakeTokenizer::Piece(1), -0.5F}, {FakeTokenizer::Piece(2), -1.0F}}}};
    writer.Put(request, completion);
    writer.Commit();
  }
  EXPECT_THAT(FileText(folder / "out"),
              HasSubstr(R"("finish_reason":"stop","logprobs":{"tokens":[" the","bytes:\\xe2\\x82","</s>"],)"
                        R"("token_logprobs":[-0.5,-3,-9999],"top_logprobs":[{" the":-0.5,"bytes:\\xe2\\x82":-1.25},)"
                        R"({" the":-0.25,"\n":-2,"bytes:\\xe2\\x82":-3},{"é":-0.5,"</s>":-9999}]}}],"usage")"));
}

TEST(CompletionWriter, KeepsTheInputsOrderForAnyOrderOfAnswers) {
  const TemporaryFolder folder;
  std::mt19937 generator(4);
  std::string expected;
  std::string expected_fingerprint;
  for (int round = 0; round < 10; ++round) {
    const fs::path path = folder / std::to_string(round);
    std::vector<int64_t> lines;
    for (int64_t line = 2; line < 200; line += 1 + line % 3) lines.push_back(line);
    CompletionWriter writer(path, Tokens(), Options());
    for (const int64_t line : lines) writer.Expect(line);
    if (round > 0) std::ranges::shuffle(lines, generator);
    for (const int64_t line : lines) {
      if (line % 5 == 0) {
        writer.Put(BadLine(line));
      } else {
        writer.Put(Line(line), Answer("t", {static_cast<TokenId>(line), 9}));
      }
    }
    writer.Commit();
    if (round == 0) {
      expected = FileText(path);
      expected_fingerprint = writer.fingerprint();
    }
    EXPECT_EQ(FileText(path), expected);
    EXPECT_EQ(writer.fingerprint(), expected_fingerprint);
  }
  TokenFingerprint fingerprint;
  for (int64_t line = 2; line < 200; line += 1 + line % 3) {
    if (line % 5 != 0) fingerprint.Add(std::vector<TokenId>{static_cast<TokenId>(line), 9});
  }
  EXPECT_EQ(fingerprint.Hex(), expected_fingerprint);
}

TEST(TokenFingerprint, IsXxh64OfTheIds) {
  TokenFingerprint fingerprint;
  EXPECT_EQ(fingerprint.Hex(), "ef46db3751d8e999");  // of nothing, as in XXH64's own vectors
  fingerprint.Add(std::vector<TokenId>{1, 2});
  TokenFingerprint split;
  split.Add(std::vector<TokenId>{1});
  split.Add(std::vector<TokenId>{});
  split.Add(std::vector<TokenId>{2});
  EXPECT_EQ(fingerprint.value(), split.value());
}

TEST(CompletionWriter, WritesALineAsSoonAsTheOnesBeforeAreThere) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", Tokens(), Options());
  for (int64_t line = 1; line <= 3; ++line) writer.Expect(line);
  const auto num_lines = [&] { return std::ranges::count(FileText(folder / "out.part"), '\n'); };
  writer.Put(BadLine(2));
  EXPECT_EQ(num_lines(), 0);
  writer.Put(BadLine(1));
  EXPECT_EQ(num_lines(), 2);
  writer.Put(BadLine(3));
  EXPECT_EQ(num_lines(), 3);
}

TEST(CompletionWriter, AnInterruptedRunKeepsItsFinishedLines) {
  const TemporaryFolder folder;
  const fs::path path = folder / "out";
  {
    CompletionWriter writer(path, Tokens(), Options());
    for (int64_t line = 1; line <= 4; ++line) writer.Expect(line);
    writer.Put(BadLine(4));
    writer.Put(BadLine(2));
    writer.FlushFinished();
  }
  const std::string kept = FileText(folder / "out.part");
  EXPECT_THAT(kept, HasSubstr("line 2"));
  EXPECT_LT(kept.find("line 2"), kept.find("line 4"));
  std::string message;
  EXPECT_EQ(OpeningFails(path, false, &message), ErrorCode::kOutputExists);
  EXPECT_THAT(message, HasSubstr("out.part: holds the finished lines of an interrupted run"));
  EXPECT_EQ(FileText(folder / "out.part"), kept);
  WriteOne(path, true);
  EXPECT_FALSE(fs::exists(folder / "out.part"));
}

TEST(CompletionWriter, AnUnfinishedRunWithoutLinesLeavesNothing) {
  const TemporaryFolder folder;
  { CompletionWriter writer(folder / "out", Tokens(), Options()); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
  folder.Write("out.part", "");  // what kill -9 leaves before the first line
  WriteOne(folder / "out");
  EXPECT_EQ(std::ranges::count(FileText(folder / "out"), '\n'), 1);
}

TEST(CompletionWriter, AnEmptyInputGivesAnEmptyFile) {
  const TemporaryFolder folder;
  CompletionWriter(folder / "out", Tokens(), Options()).Commit();
  EXPECT_TRUE(fs::exists(folder / "out"));
  EXPECT_EQ(fs::file_size(folder / "out"), 0u);
}

TEST(CompletionWriter, AnExistingOutputIsOnlyReplacedWhenAsked) {
  const TemporaryFolder folder;
  const fs::path path = folder.Write("out", "old");
  EXPECT_EQ(OpeningFails(path), ErrorCode::kOutputExists);
  EXPECT_EQ(FileText(path), "old");
  {
    CompletionWriter writer(path, Tokens(), Options(true));
    EXPECT_EQ(FileText(path), "old");  // until Commit
  }
  EXPECT_EQ(FileText(path), "old");
  WriteOne(path, true);
  EXPECT_NE(FileText(path), "old");
  EXPECT_FALSE(fs::exists(folder / "out.part"));
}

TEST(CompletionWriter, AFileThatAppearsMeanwhileIsNotReplaced) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", Tokens(), Options());
  writer.Expect(1);
  writer.Put(BadLine(1));
  folder.Write("out", "another's");
  std::string message;
  EXPECT_EQ(CodeOf([&] { writer.Commit(); }, &message), ErrorCode::kOutputExists);
  EXPECT_THAT(message, HasSubstr("the lines are in out.part"));
  EXPECT_EQ(FileText(folder / "out"), "another's");
  EXPECT_THAT(FileText(folder / "out.part"), HasSubstr("line 1"));
}

TEST(CompletionWriter, TwoRunsDoNotShareAnOutput) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", Tokens(), Options());
  EXPECT_EQ(OpeningFails(folder / "out"), ErrorCode::kRunInUse);
  EXPECT_EQ(OpeningFails(folder / "out", true), ErrorCode::kRunInUse);
  writer.Commit();
}

TEST(CompletionWriter, RefusesPathsAtOnce) {
  const TemporaryFolder folder;
  std::string message;
  EXPECT_EQ(OpeningFails(folder / "missing/out", false, &message), ErrorCode::kPath);
  EXPECT_THAT(message, HasSubstr("missing: cannot be written: No such file"));
  EXPECT_EQ(OpeningFails(folder.path()), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.path(), true), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.path().string() + "/"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder.Write("file", "") / "out"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder / std::string(300, 'n')), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(""), ErrorCode::kPath);
}

TEST(CompletionWriter, NeverWritesThroughALink) {
  const TemporaryFolder folder;
  const fs::path victim = folder.Write("victim", "precious");
  fs::create_symlink(victim, folder / "out");
  EXPECT_EQ(OpeningFails(folder / "out"), ErrorCode::kPath);
  EXPECT_EQ(OpeningFails(folder / "out", true), ErrorCode::kPath);
  fs::create_symlink(victim, folder / "two.part");
  EXPECT_EQ(OpeningFails(folder / "two", true), ErrorCode::kPath);
  fs::create_symlink(folder / "nowhere", folder / "three");
  EXPECT_EQ(OpeningFails(folder / "three"), ErrorCode::kPath);
  fs::create_hard_link(victim, folder / "four.part");
  WriteOne(folder / "four", true);  // the name goes away, not the file behind it
  ASSERT_EQ(::mkfifo((folder / "five.part").c_str(), 0600), 0);
  EXPECT_EQ(OpeningFails(folder / "five", true), ErrorCode::kPath);
  EXPECT_EQ(FileText(victim), "precious");
}

TEST(CompletionWriter, TheModeFollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(077);
  WriteOne(folder / "private");
  ::umask(022);
  WriteOne(folder / "shared");
  ::umask(before);
  EXPECT_EQ(fs::status(folder / "private").permissions(), fs::perms(0600));
  EXPECT_EQ(fs::status(folder / "shared").permissions(), fs::perms(0644));
}

TEST(CompletionWriter, StreamsAreWrittenInPlace) {
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
  CompletionWriter full("/dev/full", Tokens(), Options());
  full.Expect(1);
  EXPECT_EQ(CodeOf([&] { full.Put(BadLine(1)); }), ErrorCode::kDiskSpace);
}

// Runs `action` in a child process with `stdout_fd` as its standard output; returns its exit status.
int InChild(int stdout_fd, const std::function<int()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    if (stdout_fd >= 0) ::dup2(stdout_fd, STDOUT_FILENO);
    int status = 99;
    try {
      status = action();
    } catch (const Error& error) {
      status = ExitStatus(error.code());
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// A thousand lines to standard output, 150 bytes each.
int WriteToStdout() {
  CompletionWriter writer("-", Tokens(), Options());
  for (int64_t line = 1; line <= 1000; ++line) {
    writer.Expect(line);
    writer.Put(BadLine(line));
  }
  writer.Commit();
  return 0;
}

TEST(CompletionWriter, StandardOutputFaultsAreErrors) {
  const int full = ::open("/dev/full", O_WRONLY);
  EXPECT_EQ(InChild(full, WriteToStdout), 32);
  ::close(full);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  EXPECT_EQ(InChild(ends[1], WriteToStdout), 40);
  ::close(ends[1]);
  EXPECT_EQ(InChild(-1, [] {
              ::close(STDOUT_FILENO);
              return WriteToStdout();
            }),
            40);
}

TEST(CompletionWriter, ASlowNonBlockingPipeGetsEveryLine) {
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
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(std::ranges::count(text, '\n'), 1000);
}

TEST(CompletionWriter, AFullDiskLeavesWholeLines) {
  const TemporaryFolder folder;
  const int status = InChild(-1, [&] {
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CompletionWriter writer(folder / "out", Tokens(), Options());
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

TEST(CompletionWriterDeathTest, AnswersMustBeExpectedOnce) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", Tokens(), Options());
  writer.Expect(2);
  EXPECT_DEATH(writer.Expect(2), "does not hold");
  EXPECT_DEATH(writer.Put(BadLine(1)), "does not hold");
  EXPECT_DEATH(writer.Commit(), "does not hold");
}

}  // namespace
}  // namespace spillway
