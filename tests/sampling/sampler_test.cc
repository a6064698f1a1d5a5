#include "src/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "src/sampling/choice_set.h"
#include "src/sampling/stop_search.h"
#include "src/sampling/token_choice.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/trace_case.h"

namespace spillway {
namespace {

using testing::ElementsAre;

constexpr TokenId kEnd = FakeTokenizer::kEnd;
constexpr float kInf = std::numeric_limits<float>::infinity();

Request MakeRequest(int64_t max_tokens = 100) {
  Request request;
  request.line = 3;
  request.prompt = {FakeTokenizer::kStart, FakeTokenizer::Byte('p')};
  request.sampling.max_tokens = max_tokens;
  return request;
}

// Logits with `token` on top and, below it, the end token.
std::vector<float> Peak(TokenId token, int64_t vocab) {
  std::vector<float> logits(static_cast<std::size_t>(vocab), 0.0F);
  logits[kEnd] = 1.0F;
  logits[static_cast<std::size_t>(token)] = 2.0F;
  return logits;
}

ChoiceScratch scratch;  // what one choice leaves there must not reach the next

struct Outcome {
  Completion completion;
  RowStatus status = RowStatus::kRunning;
};

// Forces `tokens` one by one until the row ends.
Outcome Feed(const Request& request, const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
             std::vector<TokenId> eos = {kEnd}) {
  RowSampler sampler(request, tokenizer, eos, 0);
  for (const TokenId token : tokens) {
    if (sampler.status() != RowStatus::kRunning) break;
    std::vector<float> logits = Peak(token, tokenizer.vocab_size());
    sampler.Step(logits, scratch);
  }
  const RowStatus status = sampler.status();
  if (status != RowStatus::kStopped && status != RowStatus::kLength) return {{}, status};
  return {sampler.Take(), status};
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char byte : text) tokens.push_back(FakeTokenizer::Byte(byte));
  return tokens;
}

TEST(RowSampler, StopsAtMaxTokens) {
  const Outcome outcome = Feed(MakeRequest(3), FakeTokenizer(), Bytes("abcdef"));
  EXPECT_EQ(outcome.status, RowStatus::kLength);
  EXPECT_EQ(outcome.completion.finish_reason, FinishReason::kLength);
  EXPECT_EQ(outcome.completion.text, "abc");
  EXPECT_EQ(outcome.completion.tokens, Bytes("abc"));
  EXPECT_EQ(outcome.completion.num_prompt_tokens, 2);
  EXPECT_TRUE(outcome.completion.logprobs.empty());
}

TEST(RowSampler, TheEndTokenIsInTheIdsAndNotInTheText) {
  const TokenId other_end = FakeTokenizer::Byte('z');
  for (const TokenId end : {kEnd, other_end}) {
    SCOPED_TRACE(CaseOf("end", end));
    std::vector<TokenId> tokens = Bytes("ab");
    tokens.push_back(end);
    const Outcome outcome = Feed(MakeRequest(3), FakeTokenizer(), tokens, {kEnd, other_end});
    EXPECT_EQ(outcome.status, RowStatus::kStopped);  // though it is the last of max_tokens too
    EXPECT_EQ(outcome.completion.text, "ab");
    EXPECT_EQ(outcome.completion.tokens, tokens);
  }
}

TEST(RowSampler, IgnoredEndTokensAreOrdinary) {
  Request request = MakeRequest(4);
  request.sampling.ignore_eos = true;
  request.sampling.min_tokens = 4;
  const std::vector<TokenId> tokens = {FakeTokenizer::Byte('a'), kEnd, kEnd,
                                       FakeTokenizer::Byte('b')};
  const Outcome outcome = Feed(request, FakeTokenizer(), tokens);
  EXPECT_EQ(outcome.status, RowStatus::kLength);
  EXPECT_EQ(outcome.completion.tokens, tokens);
  EXPECT_EQ(outcome.completion.text, "ab");
}

TEST(RowSampler, StopTokensEndARowAlsoWhereEosIsIgnored) {
  Request request = MakeRequest(5);
  request.sampling.ignore_eos = true;
  request.sampling.stop_token_ids = {FakeTokenizer::Byte('z')};
  std::vector<TokenId> tokens = {FakeTokenizer::Byte('a'), kEnd, FakeTokenizer::Byte('z')};
  const Outcome outcome = Feed(request, FakeTokenizer(), tokens);
  EXPECT_EQ(outcome.status, RowStatus::kStopped);
  EXPECT_EQ(outcome.completion.tokens, tokens);
  EXPECT_EQ(outcome.completion.text, "a");
}

TEST(RowSampler, StopTokensAreMaskedBelowMinTokens) {
  Request request = MakeRequest();
  request.sampling.min_tokens = 1;
  request.sampling.stop_token_ids = {FakeTokenizer::Byte('z')};
  const FakeTokenizer tokenizer;
  RowSampler sampler(request, tokenizer, {}, 0);
  std::vector<float> logits = Peak(FakeTokenizer::Byte('z'), tokenizer.vocab_size());
  sampler.Step(logits, scratch);
  EXPECT_EQ(sampler.newest(), kEnd);  // the second best
}

TEST(RowSampler, ARepetitionPenaltyActsOnThePromptAndTheTokensSoFar) {
  Request request = MakeRequest(3);
  request.sampling.repetition_penalty = 2.0;
  request.sampling.num_logprobs = 1;
  const FakeTokenizer tokenizer;
  RowSampler sampler(request, tokenizer, {}, 0);
  const auto at = [](std::vector<float>& logits, char byte) -> float& {
    return logits[static_cast<std::size_t>(FakeTokenizer::Byte(byte))];
  };
  std::vector<TokenId> chosen;
  for (int step = 0; step < 3; ++step) {
    std::vector<float> logits(300, -8.0F);
    at(logits, 'p') = 5.0F;  // of the prompt: counts 2.5
    at(logits, 'a') = 4.0F;  // counts 2 once it was chosen
    at(logits, 'b') = 3.0F;
    sampler.Step(logits, scratch);
    chosen.push_back(sampler.newest());
  }
  EXPECT_EQ(chosen, Bytes("abp"));
  // Logprobs are the model's own.
  const Completion completion = sampler.Take();
  EXPECT_EQ(completion.logprobs[0].top[0].token, FakeTokenizer::Byte('p'));
  EXPECT_NEAR(completion.logprobs[0].chosen, completion.logprobs[0].top[0].logprob - 1.0F, 1e-5F);
}

TEST(RowSampler, ARepetitionPenaltyLowersNegativeLogitsToo) {
  Request request = MakeRequest(1);
  request.sampling.repetition_penalty = 2.0;
  const FakeTokenizer tokenizer;
  RowSampler sampler(request, tokenizer, {}, 0);
  std::vector<float> logits(300, -8.0F);
  logits[static_cast<std::size_t>(FakeTokenizer::Byte('p'))] = -2.0F;
  logits[static_cast<std::size_t>(FakeTokenizer::Byte('b'))] = -3.0F;
  sampler.Step(logits, scratch);
  EXPECT_EQ(sampler.newest(), FakeTokenizer::Byte('b'));
}

TEST(RowSampler, EosIsMaskedBelowMinTokens) {
  Request request = MakeRequest();
  request.sampling.min_tokens = 2;
  const std::vector<TokenId> eos = {kEnd, 9999, -1};  // ids the logits do not have are passed over
  const FakeTokenizer tokenizer;
  for (const double temperature : {0.0, 1.0}) {
    SCOPED_TRACE(CaseOf("temperature", temperature));
    request.sampling.temperature = temperature;
    RowSampler sampler(request, tokenizer, eos, 0);
    for (int step = 0; step < 3; ++step) {
      std::vector<float> logits(300, -kInf);
      logits[kEnd] = 50.0F;
      logits[10] = 1.0F;
      sampler.Step(logits, scratch);
    }
    EXPECT_THAT(sampler.tokens(), ElementsAre(10, 10, kEnd));
    EXPECT_EQ(sampler.status(), RowStatus::kStopped);
  }
}

TEST(RowSampler, StopStringsAreFoundAtEverySplit) {
  const std::string text = "one stop, two";
  const std::string stop = "stop";
  const std::size_t end = text.find(stop) + stop.size();
  // Pieces that hold any cut of the text into three tokens.
  for (std::size_t first = 1; first < text.size(); ++first) {
    for (std::size_t second = first + 1; second < text.size(); ++second) {
      SCOPED_TRACE(CaseOf("first", first, "second", second));
      const FakeTokenizer tokenizer(
          {text.substr(0, first), text.substr(first, second - first), text.substr(second)});
      Request request = MakeRequest();
      request.sampling.stop = {"nowhere", stop};
      const Outcome outcome =
          Feed(request, tokenizer,
               {FakeTokenizer::Piece(0), FakeTokenizer::Piece(1), FakeTokenizer::Piece(2)});
      ASSERT_EQ(outcome.status, RowStatus::kStopped);
      EXPECT_EQ(outcome.completion.text, "one ");
      const std::size_t tokens = end <= first ? 1 : end <= second ? 2 : 3;
      EXPECT_EQ(outcome.completion.tokens.size(), tokens);
    }
  }
}

TEST(RowSampler, TheEarliestStopStringWins) {
  struct Case {
    const char* text;
    std::vector<std::string> stops;
    const char* kept;
  };
  for (const Case& c : std::vector<Case>{{"abcdef", {"de", "bc"}, "a"},
                                         {"abcdef", {"cd", "bcde"}, "a"},
                                         {"aaaa", {"aaa"}, ""},
                                         {"xyxyz", {"xyz"}, "xy"},
                                         {"x\ny", {"\n"}, "x"}}) {
    const FakeTokenizer tokenizer({c.text});
    Request request = MakeRequest();
    request.sampling.stop = c.stops;
    EXPECT_EQ(Feed(request, tokenizer, {FakeTokenizer::Piece(0)}).completion.text, c.kept)
        << c.text;
  }
  // Byte by byte the one that is complete first ends the row.
  Request request = MakeRequest();
  request.sampling.stop = {"bcde", "cd"};
  EXPECT_EQ(Feed(request, FakeTokenizer(), Bytes("abcdef")).completion.text, "ab");
}

TEST(RowSampler, StopStringsSpanSplitCharacters) {
  Request request = MakeRequest();
  request.sampling.stop = {"é€"};
  const Outcome outcome = Feed(request, FakeTokenizer(), Bytes("日é€x"));
  EXPECT_EQ(outcome.status, RowStatus::kStopped);
  EXPECT_EQ(outcome.completion.text, "日");
  EXPECT_EQ(outcome.completion.tokens, Bytes("日é€"));
}

TEST(RowSampler, StopStringsWaitForMinTokens) {
  Request request = MakeRequest(8);
  request.sampling.stop = {"ab"};
  request.sampling.min_tokens = 3;
  EXPECT_EQ(Feed(request, FakeTokenizer(), Bytes("xyab")).completion.text,
            "xy");  // three tokens come before
  EXPECT_EQ(Feed(request, FakeTokenizer(), Bytes("xabyabzz")).completion.text,
            "xaby");  // the first comes too early
  const FakeTokenizer tokenizer({"xab"});
  request.sampling.min_tokens = 1;
  EXPECT_EQ(Feed(request, tokenizer,
                 {FakeTokenizer::Piece(0), FakeTokenizer::Byte('a'), FakeTokenizer::Byte('b')})
                .completion.text,
            "xab");
}

TEST(RowSampler, HalfACharacterIsReplaced) {
  EXPECT_EQ(Feed(MakeRequest(2), FakeTokenizer(), Bytes("a€")).completion.text, "a\uFFFD");
  EXPECT_EQ(Feed(MakeRequest(4), FakeTokenizer(), Bytes("a€")).completion.text, "a€");
  EXPECT_EQ(Feed(MakeRequest(3), FakeTokenizer(), Bytes("\xff\x80z")).completion.text,
            "\uFFFD\uFFFDz");
}

TEST(RowSampler, OnlyATextThatOpensDropsItsSpace) {
  const FakeTokenizer tokenizer({" the"});
  Request request = MakeRequest(2);
  const std::vector<TokenId> tokens = {FakeTokenizer::Piece(0), FakeTokenizer::Piece(0)};
  EXPECT_EQ(Feed(request, tokenizer, tokens).completion.text, " the the");
  request.prompt = {FakeTokenizer::kStart};
  EXPECT_EQ(Feed(request, tokenizer, tokens).completion.text, "the the");
}

TEST(RowSampler, NonFiniteLogitsEndTheRow) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
    for (const TokenId place : {TokenId{0}, kEnd, TokenId{299}}) {
      for (const int64_t num_logprobs : {-1, 2}) {
        SCOPED_TRACE(CaseOf("bad", bad, "place", place, "logprobs", num_logprobs));
        Request request = MakeRequest();
        request.sampling.min_tokens = 5;  // the mask must not hide it
        request.sampling.num_logprobs = num_logprobs;
        const FakeTokenizer tokenizer;
        const std::vector<TokenId> eos = {kEnd};
        RowSampler sampler(request, tokenizer, eos, 0);
        std::vector<float> logits(300, 0.0F);
        logits[static_cast<std::size_t>(place)] = bad;
        EXPECT_EQ(sampler.Step(logits, scratch), RowStatus::kNonFinite);
        EXPECT_TRUE(sampler.tokens().empty());
      }
    }
  }
}

TEST(RowSampler, NothingLeftAfterTheMaskIsNonFinite) {
  Request request = MakeRequest();
  request.sampling.min_tokens = 1;
  const FakeTokenizer tokenizer;
  const std::vector<TokenId> eos = {kEnd};
  RowSampler sampler(request, tokenizer, eos, 0);
  std::vector<float> logits(300, -kInf);
  logits[kEnd] = 1.0F;
  EXPECT_EQ(sampler.Step(logits, scratch), RowStatus::kNonFinite);
}

TEST(RowSampler, LogprobsAreTheModelsOwn) {
  for (const double temperature : {0.0, 0.3}) {
    SCOPED_TRACE(CaseOf("temperature", temperature));
    Request request = MakeRequest(1);
    request.sampling.num_logprobs = 3;
    request.sampling.temperature = temperature;
    request.sampling.min_tokens = 1;  // eos is masked for the choice and still listed
    const FakeTokenizer tokenizer;
    const std::vector<TokenId> eos = {kEnd};
    std::vector<float> logits(300);
    for (std::size_t token = 0; token < logits.size(); ++token)
      logits[token] = std::sin(static_cast<float>(token));
    logits[kEnd] = 5.0F;
    logits[7] = logits[9] = 4.0F;
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const std::vector<float> raw = logits;
    RowSampler sampler(request, tokenizer, eos, 0);
    ASSERT_EQ(sampler.Step(logits, scratch), RowStatus::kLength);
    const Completion completion = sampler.Take();
    ASSERT_EQ(completion.logprobs.size(), 1u);
    const StepLogprobs& step = completion.logprobs[0];
    const auto chosen = static_cast<std::size_t>(completion.tokens[0]);
    EXPECT_NE(completion.tokens[0], kEnd);
    EXPECT_NEAR(step.chosen, raw[chosen] - std::log(sum), 1e-6);
    ASSERT_EQ(step.top.size(), 3u);
    EXPECT_EQ(step.top[0].token, kEnd);
    EXPECT_EQ(step.top[1].token, 7);
    EXPECT_EQ(step.top[2].token, 9);
    EXPECT_NEAR(step.top[0].logprob, 5.0 - std::log(sum), 1e-6);
    EXPECT_NEAR(step.top[2].logprob, 4.0 - std::log(sum), 1e-6);
  }
}

std::vector<TokenId> Sampled(int64_t line, std::optional<uint64_t> seed, uint64_t run_seed) {
  Request request = MakeRequest(20);
  request.line = line;
  request.sampling.seed = seed;
  request.sampling.temperature = 1.0;
  const FakeTokenizer tokenizer;
  RowSampler sampler(request, tokenizer, {}, run_seed);
  while (sampler.status() == RowStatus::kRunning) {
    std::vector<float> logits(300, 0.0F);
    sampler.Step(logits, scratch);
  }
  return sampler.Take().tokens;
}

TEST(RowSampler, DrawsDependOnSeedAndLineOnly) {
  EXPECT_EQ(Sampled(1, {}, 5), Sampled(1, {}, 5));
  EXPECT_NE(Sampled(1, {}, 5), Sampled(2, {}, 5));
  EXPECT_NE(Sampled(1, {}, 5), Sampled(1, {}, 6));
  // A seed of the line's own means the same wherever the line stands and whatever the run's seed
  // is.
  EXPECT_EQ(Sampled(1, 7, 5), Sampled(2, 7, 6));
  EXPECT_NE(Sampled(1, 7, 5), Sampled(1, 8, 5));
  EXPECT_NE(Sampled(1, 5, 5), Sampled(1, {}, 5));
}

TEST(FindStop, OnlyFindsWhatEndsInTheNewBytes) {
  const std::vector<std::string> stops = {"abc"};
  EXPECT_EQ(FindStop("xabc", 0, stops), 1u);
  EXPECT_EQ(FindStop("xabc", 3, stops), 1u);
  EXPECT_EQ(FindStop("xabc", 4, stops), std::nullopt);
  EXPECT_EQ(FindStop("abcabc", 3, stops), 3u);
  EXPECT_EQ(FindStop("", 0, stops), std::nullopt);
  EXPECT_EQ(FindStop("ab", 0, stops), std::nullopt);
  EXPECT_EQ(FindStop("abc", 0, {}), std::nullopt);
}

// A row that may answer "no", "none" or "yes".
class ChoicesTest : public ::testing::Test {
 protected:
  ChoicesTest() { Choose(eos); }

  void Choose(const std::vector<TokenId>& ends) {
    request.choices = std::make_shared<const ChoiceSet>(
        std::vector<std::string>{"no", "none", "yes"}, tokenizer, ends);
  }

  // Logits 0 but for these.
  std::vector<float> Logits(const std::vector<TokenLogit>& of) const {
    std::vector<float> logits(static_cast<std::size_t>(tokenizer.vocab_size()), 0.0F);
    for (const TokenLogit& entry : of) logits[static_cast<std::size_t>(entry.token)] = entry.logit;
    return logits;
  }
  RowStatus Step(RowSampler& sampler, const std::vector<TokenLogit>& of) const {
    std::vector<float> logits = Logits(of);
    return sampler.Step(logits, scratch);
  }

  PieceTokenizer tokenizer{{"no", "ne", "ye"}};
  std::vector<TokenId> eos = {kEnd};
  Request request = MakeRequest(7);
  const TokenId no = FakeTokenizer::Piece(0);
  const TokenId ne = FakeTokenizer::Piece(1);
  const TokenId ye = FakeTokenizer::Piece(2);
};

TEST_F(ChoicesTest, TheLikeliestTokenThatLeadsToAChoiceIsTaken) {
  RowSampler sampler(request, tokenizer, eos, 0);
  EXPECT_EQ(Step(sampler, {{FakeTokenizer::Byte('y'), 9.0F}, {ye, 2.0F}}), RowStatus::kRunning);
  EXPECT_EQ(Step(sampler, {{kEnd, 9.0F}}), RowStatus::kStopped);
  const Completion completion = sampler.Take();
  EXPECT_EQ(completion.text, "yes");
  EXPECT_EQ(completion.tokens, (std::vector<TokenId>{ye, FakeTokenizer::Byte('s')}));
  EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
  EXPECT_EQ(completion.choice->index, 2);
  const double others = std::log(std::exp(9.0) + 261.0);
  const double first = std::log(std::exp(9.0) + std::exp(2.0) + 260.0);
  EXPECT_NEAR(completion.choice->logprob, 2.0 - first - others, 1e-5);
}

// The end has the probability of all that the model may go on with but the longer choice.
TEST_F(ChoicesTest, AShorterChoiceEndsWhereTheLongerOneIsLessLikelyThanAllElse) {
  for (const auto& [of_longer, text] : {std::pair{5.0F, "no"}, {6.0F, "none"}}) {
    RowSampler sampler(request, tokenizer, eos, 0);
    EXPECT_EQ(Step(sampler, {{no, 9.0F}}), RowStatus::kRunning);
    Step(sampler, {{ne, of_longer}, {kEnd, 1.0F}});
    ASSERT_EQ(sampler.status(), RowStatus::kStopped);
    const double of_no = 9.0 - std::log(std::exp(9.0) + 261.0);
    const double longer = std::exp(double{of_longer});
    const double all = std::exp(double{of_longer}) + std::exp(1.0) + 260.0;
    const double then = text == std::string("no") ? std::log(1.0 - longer / all)
                                                  : double{of_longer} - std::log(all);
    const Completion completion = sampler.Take();
    EXPECT_EQ(completion.text, text);
    EXPECT_EQ(completion.tokens.back(), text == std::string("no") ? kEnd : ne);
    EXPECT_NEAR(completion.choice->logprob, of_no + then, 1e-5);
  }
}

TEST_F(ChoicesTest, WithoutAnEndTokenTheShorterChoiceEnds) {
  eos.clear();
  RowSampler sampler(request, tokenizer, eos, 0);
  EXPECT_EQ(Step(sampler, {{no, 9.0F}}), RowStatus::kStopped);
  EXPECT_EQ(sampler.Take().choice->index, 0);
}

TEST_F(ChoicesTest, TheLastTokenEndsAChoice) {
  request.sampling.max_tokens = 1;
  RowSampler sampler(request, tokenizer, eos, 0);
  EXPECT_EQ(Step(sampler, {{FakeTokenizer::Byte('y'), 9.0F}}), RowStatus::kStopped);
  const Completion completion = sampler.Take();
  EXPECT_EQ(completion.text, "no");
  EXPECT_EQ(completion.finish_reason, FinishReason::kStop);
}

TEST_F(ChoicesTest, LogprobsAreTheModelsOwn) {
  request.sampling.num_logprobs = 1;
  request.sampling.repetition_penalty = 2.0;
  RowSampler sampler(request, tokenizer, eos, 0);
  Step(sampler, {{FakeTokenizer::Byte('x'), 9.0F}, {no, 3.0F}});
  Step(sampler, {{kEnd, 9.0F}});
  const Completion completion = sampler.Take();
  const double all = std::log(std::exp(9.0) + std::exp(3.0) + 260.0);
  EXPECT_EQ(completion.logprobs[0].top[0].token, FakeTokenizer::Byte('x'));
  EXPECT_NEAR(completion.logprobs[0].chosen, 3.0 - all, 1e-5);
  const double ends = std::log1p(-1.0 / (std::exp(9.0) + 261.0));  // all but "ne"
  EXPECT_NEAR(completion.choice->logprob, 3.0 - all + ends, 1e-5);
}

TEST_F(ChoicesTest, DrawsFollowTheProbabilitiesOfChoices) {
  request.sampling.temperature = 1.0;
  int num_yes = 0;
  constexpr int kRows = 2000;
  for (int row = 0; row < kRows; ++row) {
    request.sampling.seed = static_cast<uint64_t>(row);
    RowSampler sampler(request, tokenizer, eos, 0);
    // Three times as likely as "no", and nothing else of a choice.
    Step(sampler, {{ye, std::log(3.0F)}, {FakeTokenizer::Byte('y'), 9.0F}});
    num_yes += sampler.newest() == ye ? 1 : 0;
  }
  EXPECT_NEAR(num_yes, 0.75 * kRows, 80);
}

TEST_F(ChoicesTest, LogitsThatAreNotFiniteAreAnErrorBehindTheMaskToo) {
  RowSampler sampler(request, tokenizer, eos, 0);
  EXPECT_EQ(Step(sampler, {{FakeTokenizer::Byte('x'), kInf}}), RowStatus::kNonFinite);
}

}  // namespace
}  // namespace spillway
