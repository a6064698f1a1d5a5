// Prompts that are cut where the flag or a line's key says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "src/requests/request_parser.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kStart = FakeTokenizer::kStart;

ReaderOptions Options(std::optional<CutSide> side) {
  ReaderOptions options = OptionsFor(8);
  options.defaults.max_tokens = 3;
  options.cut = side;
  return options;
}

// Ids 10, 11, ... behind a start token.
std::string Ids(int64_t count) {
  std::string list = std::to_string(kStart);
  for (int64_t id = 10; id < 10 + count; ++id) list += "," + std::to_string(id);
  return R"("token_ids":[)" + list + "]";
}

ParsedLine Parse(const std::string& keys, const ReaderOptions& options) {
  static const FakeTokenizer tokenizer;
  const std::string text = "{" + keys + "}";
  Line line;
  line.number = 1;
  line.text = text;
  return RequestParser(InputForm::kJsonLines, tokenizer, options).Parse(line);
}

Request Taken(const std::string& keys, const ReaderOptions& options) {
  const ParsedLine parsed = Parse(keys, options);
  if (const auto* request = std::get_if<Request>(&parsed.item)) return *request;
  ADD_FAILURE() << std::get<LineError>(parsed.item).message;
  return {};
}

std::string FaultOf(const std::string& keys, const ReaderOptions& options) {
  const ParsedLine parsed = Parse(keys, options);
  const auto* error = std::get_if<LineError>(&parsed.item);
  return error == nullptr ? "taken" : error->code;
}

TEST(CutPrompt, LeavesOutTheSideThatTheFlagNames) {
  const Request left = Taken(Ids(7), Options(CutSide::kLeft));
  EXPECT_THAT(left.prompt, ElementsAre(kStart, 13, 14, 15, 16));
  EXPECT_EQ(left.num_cut, 3);
  EXPECT_THAT(Taken(Ids(7), Options(CutSide::kRight)).prompt, ElementsAre(kStart, 10, 11, 12, 13));
  EXPECT_THAT(Taken(Ids(7), Options(CutSide::kMiddle)).prompt, ElementsAre(kStart, 10, 11, 15, 16));
}

TEST(CutPrompt, LeavesWhatFits) {
  const Request whole = Taken(Ids(4), Options(CutSide::kLeft));
  EXPECT_EQ(whole.prompt.size(), 5U);
  EXPECT_EQ(whole.num_cut, 0);
  EXPECT_EQ(FaultOf(Ids(5), Options(std::nullopt)), "context_length_exceeded");
}

TEST(CutPrompt, AnswersHaveTheTokensThatTheLineStates) {
  const Request request = Taken(Ids(7) + R"(,"max_tokens":6)", Options(CutSide::kLeft));
  EXPECT_THAT(request.prompt, ElementsAre(kStart, 16));
  EXPECT_EQ(request.sampling.max_tokens, 6);
  EXPECT_THAT(Taken(Ids(7) + R"(,"max_tokens":7)", Options(CutSide::kLeft)).prompt,
              ElementsAre(16));
  // No prompt is so short.
  EXPECT_EQ(FaultOf(Ids(7) + R"(,"max_tokens":8)", Options(CutSide::kLeft)),
            "context_length_exceeded");
}

// A limit of the model's settings, which gives way to prompts, leaves half of the positions.
TEST(CutPrompt, ALimitThatNobodyStatedLeavesHalf) {
  ReaderOptions options = Options(CutSide::kLeft);
  options.defaults.max_tokens = 100;
  options.max_tokens_yield = true;
  const Request request = Taken(Ids(7), options);
  EXPECT_EQ(request.prompt.size(), 4U);
  EXPECT_EQ(request.sampling.max_tokens, 4);
}

TEST(CutPrompt, ALineMayStateHowManyTokensStay) {
  for (const auto side : {std::optional<CutSide>(), std::optional(CutSide::kLeft)}) {
    const Request request = Taken(Ids(4) + R"(,"truncate_prompt_tokens":3)", Options(side));
    EXPECT_THAT(request.prompt, ElementsAre(kStart, 12, 13));
    EXPECT_EQ(request.num_cut, 2);
  }
  EXPECT_THAT(Taken(Ids(4) + R"(,"truncate_prompt_tokens":3.0)", Options(CutSide::kRight)).prompt,
              ElementsAre(kStart, 10, 11));
  EXPECT_EQ(Taken(Ids(9) + R"(,"truncate_prompt_tokens":-1)", Options(std::nullopt)).prompt.size(),
            5U);
  EXPECT_EQ(Taken(Ids(9) + R"(,"truncate_prompt_tokens":100)", Options(std::nullopt)).prompt.size(),
            5U);
  for (const char* bad : {"0", "-2", "1.5", "true", "\"5\""}) {
    EXPECT_EQ(FaultOf(Ids(4) + R"(,"truncate_prompt_tokens":)" + bad, Options(std::nullopt)),
              "invalid_value")
        << bad;
  }
}

TEST(CutPrompt, TextsAreEncodedWholeAndThenCut) {
  const std::string text(100, 'x');
  EXPECT_EQ(FaultOf(R"("prompt":")" + text + "\"", Options(std::nullopt)),
            "context_length_exceeded");
  const Request request = Taken(R"("prompt":")" + text + "\"", Options(CutSide::kMiddle));
  EXPECT_EQ(request.prompt.size(), 5U);
  EXPECT_EQ(request.prompt.front(), kStart);
  EXPECT_EQ(request.num_cut, 96);
}

}  // namespace
}  // namespace spillway
