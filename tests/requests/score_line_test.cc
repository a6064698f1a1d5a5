#include "src/requests/score_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "src/answers/writer.h"
#include "src/requests/reader.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

ReaderOptions Options() {
  ReaderOptions options = OptionsFor(100, FakeTokenizer::kFirstPiece);
  options.score = ScorePrefill{};
  return options;
}

// One token a byte, and no start token of its own.
class BareTokenizer final : public FakeTokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view utf8, SpecialText special) const override {
    std::vector<TokenId> ids = FakeTokenizer::Encode(utf8, special);
    ids.erase(ids.begin());
    return ids;
  }
};

Request Read(const json& line, const Tokenizer& tokenizer = FakeTokenizer(),
             const ReaderOptions& options = Options()) {
  LineNotes notes;
  const RequestOrFault read = ReadScoreLine(line, line.dump(), tokenizer, options, notes);
  if (const auto* fault = std::get_if<LineFault>(&read)) ADD_FAILURE() << fault->message;
  return std::get<Request>(read);
}

std::string FaultOf(const json& line, const Tokenizer& tokenizer = FakeTokenizer(),
                    const ReaderOptions& options = Options()) {
  LineNotes notes;
  const RequestOrFault read = ReadScoreLine(line, line.dump(), tokenizer, options, notes);
  if (const auto* fault = std::get_if<LineFault>(&read)) return fault->code;
  return notes.surplus ? notes.surplus->code : "none";
}

std::vector<TokenId> Tokens(const Request& request) {
  std::vector<TokenId> tokens = request.prompt;
  tokens.insert(tokens.end(), request.scored->told.begin(), request.scored->told.end());
  return tokens;
}

TEST(ScoreLineTest, OfTwoListsOfIdsTheSecondIsScored) {
  const Request request =
      Read({{"context_token_ids", {9, 8}}, {"continuation_token_ids", {7, 6, 5}}});
  EXPECT_EQ(Tokens(request), (std::vector<TokenId>{9, 8, 7, 6, 5}));
  EXPECT_EQ(request.scored->first, 2);
  EXPECT_EQ(request.scored->num_unscored, 0);
  EXPECT_EQ(FaultOf({{"context_token_ids", {9}}}), "missing_key");
  EXPECT_EQ(FaultOf({{"continuation_token_ids", {9}}}), "missing_key");
  EXPECT_EQ(FaultOf({{"context_token_ids", {9}}, {"continuation", "a"}}), "invalid_value");
  EXPECT_EQ(FaultOf({{"context_token_ids", "a"}, {"continuation_token_ids", {9}}}),
            "invalid_value");
  EXPECT_EQ(FaultOf({{"context_token_ids", json::array()}, {"continuation_token_ids", {9}}}),
            "empty_prompt");
  EXPECT_EQ(FaultOf({{"context_token_ids", {9}}, {"continuation_token_ids", json::array()}}),
            "empty_continuation");
  EXPECT_EQ(FaultOf({{"context_token_ids", {9}}, {"continuation_token_ids", {99999}}}),
            "token_out_of_range");
}

json Message(const char* role, const json& content) {
  return {{"role", role}, {"content", content}};
}

TEST(ScoreLineTest, OfMessagesTheAssistantsLastIsScored) {
  const TemporaryFolder folder;
  folder.Write("chat_template.jinja",
               "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
               "{{ '[a]' if add_generation_prompt }}");
  ReaderOptions options = Options();
  options.chat = std::make_shared<const ChatReading>(folder.path(), "", std::tm(), "");
  const FakeTokenizer tokenizer;
  const json asked = Message("user", "x");
  const Request request =
      Read({{"messages", {asked, Message("assistant", "yes")}}}, tokenizer, options);
  const std::vector<TokenId> prompt = tokenizer.EncodeBare("[user]x[a]", SpecialText::kParse);
  EXPECT_EQ(request.scored->first, std::ssize(prompt));
  EXPECT_EQ(tokenizer.Decode(Tokens(request)), "[user]x[a]yes");
  const json parts = {{{"type", "text"}, {"text", "ye"}}};
  EXPECT_EQ(tokenizer.Decode(Tokens(
                Read({{"messages", {asked, Message("assistant", parts)}}}, tokenizer, options))),
            "[user]x[a]ye");
  const auto fault = [&](const json& line) { return FaultOf(line, tokenizer, options); };
  EXPECT_EQ(fault({{"messages", {asked}}}), "invalid_value");
  EXPECT_EQ(fault({{"messages", {Message("assistant", "a")}}}), "invalid_value");
  EXPECT_EQ(fault({{"messages", {asked, Message("assistant", nullptr)}}}), "invalid_value");
  EXPECT_EQ(fault({{"messages", {asked, Message("assistant", "")}}}), "empty_continuation");
  EXPECT_EQ(fault({{"messages", "a"}}), "invalid_value");
  EXPECT_EQ(fault({{"messages", {asked}}, {"text", "a"}}), "invalid_value");
  EXPECT_EQ(fault({{"text", "a"}, {"tools", {json::object()}}}), "unsupported_value");
  EXPECT_EQ(
      fault({{"messages", {asked, Message("assistant", "a")}}, {"continue_final_message", true}}),
      "unsupported_value");
  EXPECT_EQ(FaultOf({{"messages", {asked, Message("assistant", "a")}}}), "no_chat_template");
}

TEST(ScoreLineTest, ATextIsScoredAfterItsStartToken) {
  const Request request = Read({{"text", "abc"}});
  EXPECT_EQ(Tokens(request), FakeTokenizer().Encode("abc", SpecialText::kParse));
  EXPECT_EQ(request.scored->first, 1);
  EXPECT_EQ(request.scored->num_unscored, 0);
  EXPECT_EQ(request.NumPromptLogits(), 3);
}

TEST(ScoreLineTest, WithoutAStartTokenTheFirstEntryIsNull) {
  EXPECT_EQ(Read({{"text", "abc"}}, BareTokenizer()).scored->num_unscored, 1);
  // Even where it is the start token.
  EXPECT_EQ(Read({{"token_ids", {FakeTokenizer::kStart, 9}}}).scored->num_unscored, 1);
}

TEST(ScoreLineTest, SpacesAtTheContextsEndAreTheContinuations) {
  for (const char* spaces : {"", " ", " \t\r\n", "\u00a0\u2003", "\x1c"}) {
    SCOPED_TRACE(::testing::PrintToString(spaces));
    const Request request = Read({{"context", std::string("ab") + spaces}, {"continuation", "c"}});
    EXPECT_EQ(Tokens(request),
              FakeTokenizer().Encode(std::string("ab") + spaces + "c", SpecialText::kParse));
    EXPECT_EQ(request.scored->first, 3);
    EXPECT_EQ(request.scored->num_unscored, 0);
  }
}

TEST(ScoreLineTest, AnEmptyContextIsTheStartToken) {
  const FakeTokenizer adds_start;
  const BareTokenizer bare;
  for (const FakeTokenizer* tokenizer : {&adds_start, static_cast<const FakeTokenizer*>(&bare)}) {
    SCOPED_TRACE(tokenizer == &bare ? "without a start token" : "with a start token");
    const Request request = Read({{"context", "  "}, {"continuation", "c"}}, *tokenizer);
    EXPECT_EQ(Tokens(request), adds_start.Encode("  c", SpecialText::kParse));
    EXPECT_EQ(request.scored->first, 1);
  }
  ReaderOptions options = Options();
  options.start_token = -1;
  EXPECT_EQ(FaultOf({{"context", ""}, {"continuation", "c"}}, BareTokenizer(), options),
            "empty_prompt");
}

TEST(ScoreLineTest, AContinuationWithoutTokensIsAFault) {
  EXPECT_EQ(FaultOf({{"context", "ab"}, {"continuation", ""}}), "empty_continuation");
  EXPECT_EQ(FaultOf({{"context", ""}, {"continuation", ""}}), "empty_continuation");
  // These spaces are a continuation.
  EXPECT_EQ(FaultOf({{"context", "ab "}, {"continuation", ""}}), "none");
}

// lm-eval-harness keeps the last positions + 1 tokens, the last of which is never fed.
TEST(ScoreLineTest, AContextThatIsTooLongIsCutFromTheLeft) {
  const FakeTokenizer tokenizer;
  const std::string context(150, 'a');
  const Request text = Read({{"context", context + "bc"}, {"continuation", "def"}});
  EXPECT_EQ(tokenizer.Decode(Tokens(text)), std::string(96, 'a') + "bcdef");
  EXPECT_EQ(text.scored->first, 98);
  EXPECT_EQ(text.num_cut, 1 + 150 + 5 - 101);
  EXPECT_EQ(text.prompt.size(), 100u);

  const json ids(150, 9);
  const Request pair = Read({{"context_token_ids", ids}, {"continuation_token_ids", {7, 6}}});
  EXPECT_EQ(pair.num_cut, 51);
  EXPECT_EQ(Read({{"context_token_ids", json(99, 9)}, {"continuation_token_ids", {7, 6}}}).num_cut,
            0);
  // The continuation may take all of the window, but no more.
  const Request whole = Read({{"context", "a"}, {"continuation", std::string(100, 'c')}});
  EXPECT_EQ(whole.scored->first, 1);
  EXPECT_EQ(whole.num_cut, 1);
  EXPECT_EQ(FaultOf({{"context", "a"}, {"continuation", std::string(101, 'c')}}),
            "context_length_exceeded");
  EXPECT_EQ(FaultOf({{"text", std::string(100, 'c')}}), "context_length_exceeded");
  EXPECT_EQ(FaultOf({{"token_ids", json(101, 9)}}), "context_length_exceeded");
}

TEST(ScoreLineTest, KeysOfOtherVerbsChangeNothingAtTheirNeutralValueOnly) {
  EXPECT_EQ(FaultOf({{"text", "a"}, {"max_tokens", 3}}), "unsupported_value");
  EXPECT_EQ(FaultOf({{"text", "a"}, {"echo", true}}), "unsupported_value");
  EXPECT_EQ(FaultOf({{"text", "a"}, {"contxt", "b"}}), "unknown_key");
  for (const json& key : std::vector<json>{{{"max_tokens", nullptr}},
                                           {{"echo", false}},
                                           {{"model", "m"}},
                                           {{"tools", json::array()}},
                                           {{"context", nullptr}, {"continuation", nullptr}},
                                           {{"doc_id", 7}}}) {
    json line = {{"text", "a"}};
    line.update(key);
    EXPECT_EQ(FaultOf(line), "none") << line;
  }
  ReaderOptions strict = Options();
  strict.strict = true;
  EXPECT_EQ(FaultOf({{"text", "a"}, {"doc_id", 7}}, FakeTokenizer(), strict), "surplus_key");
}

TEST(ScoreLineTest, AKvPolicyThatEvictsIsFedFromTheContextOn) {
  ReaderOptions options = Options();
  options.score = ScorePrefill{{}, true};
  EXPECT_EQ(Read({{"text", "abcdef"}}, FakeTokenizer(), options).prompt.size(), 1U);
  EXPECT_EQ(
      Read({{"context", "abc"}, {"continuation", "def"}}, FakeTokenizer(), options).prompt.size(),
      4U);
}

TEST(ScoreLineTest, ReaderKeepsNumbersAndNames) {
  TemporaryFolder folder;
  const auto path = folder.Write("in.jsonl",
                                 "{\"text\":\"a\"}\n\n{\"text\":\"a\",\"custom_id\":\"x\"}\n{"
                                 "\"text\":1,\"custom_id\":\"y\"}\n");
  const FakeTokenizer tokenizer;
  RequestReader reader(path, tokenizer, Options());
  EXPECT_EQ(std::get<Request>(*reader.Next()).custom_id, "1");
  const auto second = std::get<Request>(*reader.Next());
  EXPECT_EQ(second.custom_id, "x");
  EXPECT_EQ(second.line, 3);
  const auto third = std::get<LineError>(*reader.Next());
  EXPECT_EQ(third.custom_id, "y");
  EXPECT_THAT(third.message, HasSubstr("line 4: "));
}

TEST(ScoreLineTest, WhatHasNoProbabilityCountsAsTheFloor) {
  TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  CompletionWriter writer(folder / "out.jsonl", tokenizer,
                          {"m", 0, ExistingOutput::kRefuse, AnswerForm::kScore});
  Request request = Read({{"token_ids", {9, 8, 7}}});
  request.line = 1;
  request.custom_id = "1";
  Completion completion;
  completion.scores = {{-0.5F, -std::numeric_limits<float>::infinity()}, false};
  writer.Expect(1);
  writer.Put(request, completion);
  EXPECT_EQ(writer.scores().num_tokens, 2);
  EXPECT_EQ(writer.scores().logprob_sum, -9999.5);
  writer.Finish();
  EXPECT_EQ(
      FileText(folder / "out.jsonl"),
      "{\"custom_id\":\"1\",\"logprob_sum\":-9999.5,\"num_tokens\":2,\"token_logprobs\":[null,-0.5,"
      "-9999],\"greedy_match\":false}\n");
}

}  // namespace
}  // namespace spillway
