#include "src/answers/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "src/answers/fingerprint.h"
#include "tests/answers/writer_values.h"
#include "tests/temporary_folder.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

TEST(CompletionWriter, WritesTheDocumentedLines) {
  const TemporaryFolder folder;
  {
    CompletionWriter writer(folder / "out.jsonl", WriterTokens(), TestWriterOptions());
    writer.Expect(1);
    writer.Expect(3);
    writer.Put(RequestOfLine(1), Answer("a\n\"é\"", {7, 8, 2}));
    writer.Put(BadLine(3));
    EXPECT_FALSE(fs::exists(folder / "out.jsonl"));
    EXPECT_EQ(writer.part_path(), folder / "out.jsonl.part");
    writer.Finish();
    EXPECT_EQ(writer.answers().num_completions, 1);
    EXPECT_EQ(writer.answers().num_errors, 1);
  }
  EXPECT_EQ(
      FileText(folder / "out.jsonl"),
      R"({"id":"batch_req_000000000000abcd_1","custom_id":"id-1","response":{"status_code":200,)"
      R"("request_id":"req_000000000000abcd_1","body":{"id":"cmpl-000000000000abcd_1",)"
      R"("object":"text_completion","created":0,"model":"tales","choices":)"
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
  const std::string nasty =
      std::string("\0\x01\x1b[2J\x7f\\\"/\r\n\u2028\U0001F600", 19) + "\xff\xc3";
  {
    CompletionWriter writer(folder / "out", WriterTokens(), {nasty, 1, ExistingOutput::kRefuse});
    writer.Expect(1);
    writer.Expect(2);
    Request request = RequestOfLine(1);
    request.custom_id = nasty;
    writer.Put(request, Answer(nasty, {}));
    writer.Put(LineError{2, nasty, nasty, nasty});
    writer.Finish();
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
    CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
    writer.Expect(1);
    Request request = RequestOfLine(1);
    request.sampling.num_logprobs = 2;
    Completion completion = Answer("x", {the, half, FakeTokenizer::kEnd});
    completion.finish_reason = FinishReason::kStop;
    // The chosen one is among the best; is beyond them; two ids of one text, the chosen's of no
    // chance at all.
    completion.logprobs = {{-0.5F, {{the, -0.5F}, {half, -1.25F}}},
                           {-3.0F, {{the, -0.25F}, {FakeTokenizer::Byte('\n'), -2.0F}}},
                           {-std::numeric_limits<float>::infinity(),
                            {{FakeTokenizer::Piece(1), -0.5F}, {FakeTokenizer::Piece(2), -1.0F}}}};
    writer.Put(request, completion);
    writer.Finish();
  }
  EXPECT_THAT(
      FileText(folder / "out"),
      HasSubstr(
          R"("finish_reason":"stop","logprobs":{"tokens":[" the","bytes:\\xe2\\x82","</s>"],)"
          R"("token_logprobs":[-0.5,-3,-9999],"top_logprobs":[{" the":-0.5,"bytes:\\xe2\\x82":-1.25},)"
          R"({" the":-0.25,"\n":-2,"bytes:\\xe2\\x82":-3},{"é":-0.5,"</s>":-9999}]}}],"usage")"));
}

TEST(CompletionWriter, CountsCompletionsWithoutAText) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
  for (int64_t line = 1; line <= 3; ++line) writer.Expect(line);
  writer.Put(RequestOfLine(1), Answer("", {2}));
  writer.Put(RequestOfLine(2), Answer("a", {7}));
  writer.Put(BadLine(3));
  writer.Finish();
  EXPECT_EQ(writer.answers().num_empty, 1);
}

TEST(CompletionWriter, KeepsTheInputsOrderForAnyOrderOfAnswers) {
  const TemporaryFolder folder;
  std::mt19937 generator(4);
  std::string expected;
  std::string expected_fingerprint;
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(CaseOf("round", round));
    const fs::path path = folder / std::to_string(round);
    std::vector<int64_t> lines;
    for (int64_t line = 2; line < 200; line += 1 + line % 3) lines.push_back(line);
    CompletionWriter writer(path, WriterTokens(), TestWriterOptions());
    for (const int64_t line : lines) writer.Expect(line);
    if (round > 0) std::ranges::shuffle(lines, generator);
    for (const int64_t line : lines) {
      if (line % 5 == 0) {
        writer.Put(BadLine(line));
      } else {
        writer.Put(RequestOfLine(line), Answer("t", {static_cast<TokenId>(line), 9}));
      }
    }
    writer.Finish();
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
  CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
  for (int64_t line = 1; line <= 3; ++line) writer.Expect(line);
  const auto num_lines = [&] { return std::ranges::count(FileText(folder / "out.part"), '\n'); };
  writer.Put(BadLine(2));
  EXPECT_EQ(num_lines(), 0);
  writer.Put(BadLine(1));
  EXPECT_EQ(num_lines(), 2);
  writer.Put(BadLine(3));
  EXPECT_EQ(num_lines(), 3);
}

TEST(CompletionWriterDeathTest, AnswersMustBeExpectedOnce) {
  const TemporaryFolder folder;
  CompletionWriter writer(folder / "out", WriterTokens(), TestWriterOptions());
  writer.Expect(2);
  EXPECT_DEATH(writer.Expect(2), "does not hold");
  EXPECT_DEATH(writer.Put(BadLine(1)), "does not hold");
  EXPECT_DEATH(writer.Finish(), "does not hold");
}

}  // namespace
}  // namespace spillway
