// Keys of a request: those that OpenAI and vLLM document at their neutral values, other spellings,
// misspelt ones and those that nothing knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/requests/request_parser.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ReaderOptions Options() {
  ReaderOptions options = OptionsFor(64);
  options.defaults.max_tokens = 8;
  return options;
}

ParsedLine Parse(const std::string& text, const ReaderOptions& options = Options()) {
  static const FakeTokenizer tokenizer;
  const RequestParser parser(InputForm::kJsonLines, tokenizer, options);
  Line line;
  line.number = 1;
  line.text = text;
  return parser.Parse(line);
}

// "code: message", or "taken".
std::string Outcome(const ParsedLine& parsed) {
  const auto* error = std::get_if<LineError>(&parsed.item);
  return error == nullptr ? "taken" : error->code + ": " + error->message;
}

// The forms of a prompt that has this key too.
std::vector<std::string> BothForms(const std::string& key) {
  return {R"({"prompt":"a",)" + key + "}",
          R"({"method":"POST","url":"/v1/completions","body":{"prompt":"a",)" + key + "}}"};
}

Request Taken(const std::string& key) {
  const ParsedLine parsed = Parse(BothForms(key)[0]);
  EXPECT_EQ(Outcome(parsed), "taken") << key;
  return std::get<Request>(parsed.item);
}

TEST(Keys, NeutralValuesArePassedOverWithoutAWord) {
  for (const char* key : {R"("n":1)",
                          R"("n":1.0)",
                          R"("n":null)",
                          R"("best_of":1)",
                          R"("echo":false)",
                          R"("stream":false)",
                          R"("stream":true)",
                          R"("stream":true)",
                          R"("do_sample":false)",
                          R"("num_return_sequences":1)",
                          R"("detokenize":true)",
                          R"("parallel_tool_calls":true)",
                          R"("modalities":["text"])",
                          R"("metadata":{"score":NaN})",
                          R"("metadata":[Infinity,-Infinity])",
                          R"("stream_options":null)",
                          R"("presence_penalty":0)",
                          R"("frequency_penalty":0.0)",
                          R"("frequency_penalty":-0.0)",
                          R"("logit_bias":null)",
                          R"("logit_bias":{})",
                          R"("logit_bias":{"5":0,"6":0.0})",
                          R"("suffix":null)",
                          R"("suffix":"")",
                          R"("user":"me")",
                          R"("user":7)",
                          R"("metadata":{"a":"b"})",
                          R"("model":"gpt")",
                          R"("temperature":null)",
                          R"("stop":null)",
                          R"("stop":[])",
                          R"("stop":"")",
                          R"("response_format":{"type":"text"})",
                          R"("guided_json":null)",
                          R"("allowed_token_ids":null)",
                          R"("min_p":0.0)",
                          R"("repetition_penalty":1.0)",
                          R"("length_penalty":1.0)",
                          R"("early_stopping":false)",
                          R"("skip_special_tokens":true)",
                          R"("spaces_between_special_tokens":true)",
                          R"("use_beam_search":false)",
                          R"("priority":0)",
                          R"("service_tier":"auto")",
                          R"("include_stop_str_in_output":false)",
                          R"("add_special_tokens":true)",
                          R"("truncate_prompt_tokens":null)",
                          R"("prompt_logprobs":null)",
                          R"("bad_words":[])",
                          R"("logits_processors":[])",
                          R"("top_logprobs":0)",
                          R"("tools":[])",
                          R"("tool_choice":"none")",
                          R"("stop_token_ids":[])",
                          R"("min_tokens":0)",
                          R"("top_k":-1)",
                          R"("logprobs":false)",
                          R"("messages":null)",
                          R"("token_ids":null)",
                          R"("max_token":null)",
                          R"("nobody_knows_this":null)"}) {
    for (const std::string& line : BothForms(key)) {
      const ParsedLine parsed = Parse(line);
      EXPECT_EQ(Outcome(parsed), "taken") << line;
      EXPECT_THAT(parsed.notes.passed_over, IsEmpty()) << line;
    }
  }
}

// The room for an answer is its choices', unless a line states it.
TEST(Keys, ChoicesHaveThreeSpellings) {
  for (const char* key : {R"("choices":["no","yes"])", R"("guided_choice":["no","yes"])",
                          R"("structured_outputs":{"choice":["no","yes"],"regex":null})"}) {
    const Request request = Taken(key);
    EXPECT_THAT(request.choices->texts(), ElementsAre("no", "yes")) << key;
    EXPECT_EQ(request.sampling.max_tokens, 3 + 1);
  }
  EXPECT_EQ(Taken(R"("choices":["no","yes"],"max_tokens":3)").sampling.max_tokens, 3);
  EXPECT_EQ(Taken(R"("choices":["no","yes"],"max_tokens":50)").sampling.max_tokens, 4);
  EXPECT_EQ(Taken(R"("choices":null)").choices, nullptr);
  EXPECT_EQ(Taken(R"("choices":[])").choices, nullptr);
  const Request twice = Taken(R"("choices":["no"],"guided_choice":["no"])");
  EXPECT_THAT(twice.choices->texts(), ElementsAre("no"));
}

TEST(Keys, ChoicesThatCannotBeAnsweredAreErrorsOfTheirLines) {
  const auto says = [](const std::string& key, const std::string& words) {
    for (const std::string& line : BothForms(key))
      EXPECT_THAT(Outcome(Parse(line)), HasSubstr(words)) << line;
  };
  for (const char* value : {R"("yes")", R"(["yes",""])", "[1]", R"({"a":1})"})
    says(std::string(R"("choices":)") + value, "invalid_value: line 1: \"choices\" must be a list");
  says(R"("choices":["yes"],"max_tokens":2)",
       "\"max_tokens\" is 2, and one of the \"choices\" takes 3");
  says(R"("choices":[")" + std::string(70000, 'a') + R"("])", "have 70000 bytes");
  says(R"("choices":[")" + std::string(70, 'a') + R"("])", "one of the \"choices\" takes 70");
  says(R"("choices":["a"],"guided_choice":["b"])", "stand there by two names");
  says(R"("choices":["a"],"guided_choice":[])", "stand there by two names");
  says(R"("guided_choice":[])", "no choice in the list");
  says(R"("structured_outputs":{"choice":[]})", "no choice in the list");
  for (const char* ends :
       {R"("stop":"x")", R"("stop_token_ids":[4])", R"("min_tokens":1)", R"("ignore_eos":true)"})
    says(R"("choices":["yes"],)" + std::string(ends), "do not go together");
  says(R"("choices":["yes"],"stop":[],"ignore_eos":false,"repetition_penalty":1)", "taken");
}

// The room yields to the prompt, down to what the choices take.
TEST(Keys, ChoicesFitBehindALongPrompt) {
  const auto line_of = [](int size) {
    return R"({"choices":["no","yes"],"prompt":")" +
           std::string(static_cast<std::size_t>(size), 'a') + R"("})";
  };
  const ParsedLine fits = Parse(line_of(64 - 1 - 3));  // and the start token
  ASSERT_EQ(Outcome(fits), "taken");
  EXPECT_EQ(std::get<Request>(fits.item).sampling.max_tokens, 3);
  EXPECT_THAT(Outcome(Parse(line_of(64 - 1 - 2))), HasSubstr("leaves 2 for the answer"));
}

// An end token spells nothing, even one that has a text.
TEST(Keys, ChoicesThatOnlyEndTokensSpellAreRefused) {
  ReaderOptions options = Options();
  options.ends = {FakeTokenizer::Byte('n')};
  EXPECT_THAT(Outcome(Parse(R"({"prompt":"a","choices":["no"]})", options)),
              HasSubstr("cannot be spelt"));
}

// What ends other lines of the run does not end a choice.
TEST(Keys, ChoicesOfTheRunAndItsEnds) {
  ReaderOptions options = Options();
  options.defaults.choices = {"no"};
  options.defaults.stop = {"n"};
  options.defaults.min_tokens = 7;
  options.defaults.ignore_eos = true;
  options.defaults.repetition_penalty = 1.3;
  const auto request_of = [&](const char* line) {
    return std::get<Request>(Parse(line, options).item);
  };
  const Request by_flag = request_of(R"({"prompt":"a"})");
  EXPECT_THAT(by_flag.choices->texts(), ElementsAre("no"));
  EXPECT_THAT(by_flag.sampling.stop, IsEmpty());
  EXPECT_EQ(by_flag.sampling.min_tokens, 0);
  EXPECT_FALSE(by_flag.sampling.ignore_eos);
  EXPECT_EQ(by_flag.sampling.repetition_penalty, 1.0);
  EXPECT_THAT(request_of(R"({"prompt":"a","choices":["maybe"]})").choices->texts(),
              ElementsAre("maybe"));
  const Request free = request_of(R"({"prompt":"a","choices":[]})");
  EXPECT_EQ(free.choices, nullptr);
  EXPECT_THAT(free.sampling.stop, ElementsAre("n"));
  EXPECT_EQ(free.sampling.max_tokens, 8);
}

TEST(Keys, FeaturesThatAreAbsentAreNamedAndNotCalledUnknown) {
  for (const char* key : {R"("n":2)",
                          R"("n":0)",
                          R"("best_of":3)",
                          R"("echo":true)",
                          R"("presence_penalty":0.5)",
                          R"("frequency_penalty":-1)",
                          R"("logit_bias":{"5":-100})",
                          R"("suffix":"end")",
                          R"("min_p":0.1)",
                          R"("use_beam_search":true)",
                          R"("length_penalty":2)",
                          R"("guided_json":{})",
                          R"("response_format":{"type":"json_object"})",
                          R"("structured_outputs":{"regex":"a"})",
                          R"("allowed_token_ids":[5])",
                          R"("bad_words":["a"])",
                          R"("skip_special_tokens":false)",
                          R"("include_stop_str_in_output":true)",
                          R"("add_special_tokens":false)",
                          R"("prompt_logprobs":1)",
                          R"("top_logprobs":2)",
                          R"("tools":[{}])",
                          R"("chat_template_kwargs":{"a":1})"}) {
    for (const std::string& line : BothForms(key)) {
      const std::string name = std::string(key).substr(0, std::string(key).find(':'));
      EXPECT_THAT(Outcome(Parse(line)), HasSubstr("unsupported_value: line 1: " + name)) << line;
      EXPECT_THAT(Outcome(Parse(line)), HasSubstr("is not supported")) << line;
      EXPECT_THAT(Outcome(Parse(line)), Not(HasSubstr("nknown key"))) << line;
    }
  }
}

TEST(Keys, OtherSpellingsAreTaken) {
  EXPECT_EQ(Taken(R"("max_tokens":4.0)").sampling.max_tokens, 4);
  EXPECT_EQ(Taken(R"("max_tokens":1e1)").sampling.max_tokens, 10);
  EXPECT_EQ(Taken(R"("max_completion_tokens":4)").sampling.max_tokens, 4);
  EXPECT_EQ(Taken(R"("max_tokens":4,"max_completion_tokens":4.0)").sampling.max_tokens, 4);
  EXPECT_EQ(Taken(R"("top_k":40.0)").sampling.top_k, 40);
  EXPECT_EQ(Taken(R"("seed":7.0)").sampling.seed, 7u);
  EXPECT_EQ(Taken(R"("logprobs":2.0)").sampling.num_logprobs, 2);
  EXPECT_EQ(Taken(R"("logprobs":false)").sampling.num_logprobs, -1);
  EXPECT_THAT(Taken(R"("stop_token_ids":[5.0])").sampling.stop_token_ids, ElementsAre(5));
  EXPECT_THAT(Taken(R"("stop":["","\n"])").sampling.stop, ElementsAre("\n"));
  const auto prompt = [](const std::string& value) {
    return std::get<Request>(Parse(R"({"prompt":)" + value + "}").item).prompt;
  };
  EXPECT_EQ(prompt(R"(["hi"])"), prompt(R"("hi")"));
  EXPECT_THAT(prompt("[[5,6]]"), ElementsAre(5, 6));
  EXPECT_THAT(prompt("[5.0,6]"), ElementsAre(5, 6));
  EXPECT_THAT(prompt("[5]"), ElementsAre(5));
}

TEST(Keys, MisspeltOnesAreFaults) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"max_token", "max_tokens"},
      {"maxTokens", "max_tokens"},
      {"temprature", "temperature"},
      {"topp", "top_p"},
      {"stops", "stop"},
      {"prompts", "prompt"},
      {"presense_penalty", "presence_penalty"},
      {"max_new_tokens", "max_tokens"},
      {"logprob", "logprobs"}};
  for (const auto& [word, meant] : words) {
    for (const std::string& line : BothForms("\"" + word + "\":1"))
      EXPECT_THAT(Outcome(Parse(line)),
                  testing::AllOf(HasSubstr("unknown_key: line 1: unknown key \"" + word + "\""),
                                 HasSubstr("did you mean \"" + meant + "\"?")));
  }
  EXPECT_THAT(Outcome(Parse(R"({"prompt":"a","customid":"b"})")),
              HasSubstr("did you mean \"custom_id\"?"));
  EXPECT_THAT(Outcome(Parse(R"({"messages":[],"tol_choice":1})")),
              HasSubstr("did you mean \"tool_choice\"?"));
}

TEST(Keys, OthersArePassedOverAndNoted) {
  for (const std::string& line : BothForms(R"("dataset_row":1,"top":NaN,"id":3)")) {
    const ParsedLine parsed = Parse(line);
    EXPECT_EQ(Outcome(parsed), "taken");
    EXPECT_THAT(parsed.notes.passed_over, ElementsAre("dataset_row", "id", "top"));
  }
  ReaderOptions strict = Options();
  strict.strict = true;
  for (const std::string& line : BothForms(R"("dataset_row":1)"))
    EXPECT_THAT(Outcome(Parse(line, strict)),
                HasSubstr("surplus_key: line 1: unknown key \"dataset_row\""));
  for (const std::string& line : BothForms(R"("dataset_row":null,"echo":false)"))
    EXPECT_EQ(Outcome(Parse(line, strict)), "taken");
}

TEST(Keys, BesideTheBodyOnlyTheLinesOwnAreTaken) {
  const auto beside = [](const std::string& key) {
    return Parse(R"({"method":"POST","url":"/v1/completions","body":{"prompt":"a"},)" + key + "}");
  };
  EXPECT_EQ(Outcome(beside(R"("metadata":{"a":1},"user":"me")")), "taken");
  EXPECT_THAT(beside(R"("row":5)").notes.passed_over, ElementsAre("row"));
  EXPECT_THAT(Outcome(beside(R"("max_tokens":5)")), HasSubstr("put it into \"body\""));
  EXPECT_THAT(Outcome(beside(R"("custom_ids":"a")")), HasSubstr("did you mean \"custom_id\"?"));
  EXPECT_EQ(Outcome(Parse(R"({"prompt":"a","method":null,"url":null,"body":null})")), "taken");
}

TEST(Keys, TheKeyThatWasMeantForThePromptIsNamed) {
  EXPECT_THAT(Outcome(Parse(R"({"text":"a"})")),
              HasSubstr("has no key \"prompt\"; did you mean it by \"text\"?"));
  EXPECT_EQ(Outcome(Parse(R"({"prompt":"a","text":"b"})")), "taken");
}

}  // namespace
}  // namespace spillway
