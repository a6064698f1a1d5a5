#include "src/requests/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <functional>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "src/requests/input_file.h"
#include "src/requests/scan.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ReaderOptions Options() {
  ReaderOptions options = OptionsFor(64);
  options.defaults.max_tokens = 8;
  return options;
}

std::vector<RequestOrError> ReadAll(std::string_view bytes, ReaderOptions options = Options(),
                                    std::string_view name = "in.jsonl") {
  const TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  RequestReader reader(folder.Write(name, bytes), tokenizer, std::move(options));
  std::vector<RequestOrError> all;
  while (auto next = reader.Next()) all.push_back(std::move(*next));
  return all;
}

std::string TextOf(const Request& request) { return FakeTokenizer().Decode(request.prompt); }

// The prompts' texts, or the codes of bad lines in angle brackets.
std::vector<std::string> Summary(const std::vector<RequestOrError>& all) {
  std::vector<std::string> out;
  for (const auto& item : all) {
    const auto* request = std::get_if<Request>(&item);
    out.push_back(request ? TextOf(*request) : "<" + std::get<LineError>(item).code + ">");
  }
  return out;
}

Request One(std::string_view line, ReaderOptions options = Options()) {
  const auto all = ReadAll(line, std::move(options));
  EXPECT_EQ(all.size(), 1u);
  if (const auto* error = std::get_if<LineError>(&all.at(0))) ADD_FAILURE() << error->message;
  return std::get<Request>(all.at(0));
}

LineError Bad(std::string_view line, ReaderOptions options = Options()) {
  const auto all = ReadAll(line, std::move(options));
  EXPECT_EQ(all.size(), 1u) << line;
  if (std::holds_alternative<Request>(all.at(0))) {
    ADD_FAILURE() << "taken: " << line;
    return {};
  }
  return std::get<LineError>(all.at(0));
}

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

TEST(RequestReader, TakesTheBatchForm) {
  const Request request = One(
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"any","prompt":"hi","max_tokens":32,)"
      R"("temperature":0.5,"top_p":0.9,"top_k":5,"seed":7,"stop":["\n","é"],"logprobs":1,"ignore_eos":true,)"
      R"("min_tokens":2}})");
  EXPECT_EQ(request.line, 1);
  EXPECT_EQ(request.custom_id, "a");
  EXPECT_THAT(request.prompt, ElementsAre(FakeTokenizer::kStart, FakeTokenizer::Byte('h'),
                                          FakeTokenizer::Byte('i')));
  EXPECT_EQ(request.sampling.max_tokens, 32);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.seed, 7u);
  EXPECT_THAT(request.sampling.stop, ElementsAre("\n", "é"));
  EXPECT_EQ(request.sampling.num_logprobs, 1);
  EXPECT_TRUE(request.sampling.ignore_eos);
  EXPECT_EQ(request.sampling.min_tokens, 2);
}

// Together and Mistral leave url and method out, Azure the version.
TEST(RequestReader, TakesTheBatchFormsOfOtherServices) {
  for (const char* beside :
       {"", R"("method":"POST",)", R"("url":"/completions",)", R"("method":null,"url":null,)",
        R"("method":"POST","url":"https://api.openai.com/v1/completions",)"})
    EXPECT_EQ(TextOf(One(std::string("{") + beside + R"("body":{"prompt":"hi"}})")), "hi");
  for (const char* beside : {"", R"("method":"POST","url":"/chat/completions",)"}) {
    const auto read =
        ReadAll(std::string("{") + beside + R"("body":{"messages":[{"role":"user"}]}})" + "\n");
    EXPECT_EQ(std::get<LineError>(read.at(0)).code, "no_chat_template") << beside;
  }
}

TEST(RequestReader, TakesTheShortForms) {
  EXPECT_EQ(TextOf(One(R"({"prompt":"hi"})")), "hi");
  EXPECT_THAT(One(R"({"prompt":[2,299,0]})").prompt, ElementsAre(2, 299, 0));
  EXPECT_THAT(One(R"({"token_ids":[2,15],"max_tokens":3})").prompt, ElementsAre(2, 15));
  EXPECT_EQ(One(R"({"token_ids":[2,15],"max_tokens":3,"custom_id":"x"})").custom_id, "x");
}

TEST(RequestReader, FindsTheFormPerLine) {
  EXPECT_THAT(Summary(ReadAll("{\"prompt\":\"a\"}\n"
                              R"({"method":"POST","url":"/v1/completions","body":{"prompt":"b"}})"
                              "\n{\"token_ids\":[102]}\n")),
              ElementsAre("a", "b", "c"));
}

TEST(RequestReader, TakesPlainLines) {
  const auto all = ReadAll("one\n\n  \r\n{\"two\"\r\nthree </s>", Options(), "in.TXT");
  EXPECT_THAT(Summary(all), ElementsAre("one", "{\"two\"", "three "));
  EXPECT_EQ(std::get<Request>(all[1]).line, 4);
  EXPECT_EQ(std::get<Request>(all[1]).custom_id, "4");
  EXPECT_EQ(std::get<Request>(all[2]).prompt.back(), FakeTokenizer::kEnd);
  ReaderOptions plain = Options();
  plain.special_text = SpecialText::kPlain;
  EXPECT_THAT(Summary(ReadAll("</s>", plain, "in.txt")), ElementsAre("</s>"));
  EXPECT_THAT(Summary(ReadAll(std::string_view("a\0b\n\xff\nok", 8), Options(), "in.txt")),
              ElementsAre(std::string("a\0b", 3), "<invalid_utf8>", "ok"));
}

TEST(RequestReader, SkipsBlankLinesMarksAndLineEnds) {
  const TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  const std::string bytes = "\xEF\xBB\xBF\r\n{\"prompt\":\"a\"}\r\n \t\n\n{\"prompt\":\"b\"}";
  RequestReader reader(folder.Write("in.jsonl", bytes), tokenizer, Options());
  EXPECT_EQ(TextOf(std::get<Request>(*reader.Next())), "a");
  EXPECT_EQ(reader.num_lines_read(), 2);
  const std::size_t consumed = bytes.find(" \t");
  EXPECT_EQ(reader.num_bytes_read(), static_cast<int64_t>(consumed));
  EXPECT_EQ(reader.input_hash(), XXH64(bytes.data(), consumed, 0));
  EXPECT_EQ(std::get<Request>(*reader.Next()).line, 5);
  EXPECT_EQ(reader.Next(), std::nullopt);
  EXPECT_EQ(reader.num_lines_read(), 5);
  EXPECT_EQ(reader.num_blank_lines(), 3);
  EXPECT_EQ(reader.num_bytes_read(), static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(reader.input_hash(), XXH64(bytes.data(), bytes.size(), 0));
}

TEST(RequestReader, AllWhiteSpaceIsBlank) {
  const auto all =
      ReadAll("{\"prompt\":\"a\"}\v\n\f\n\xC2\xA0\xE2\x80\xA8\x1C\n\xE3\x80\x80{\"prompt\":\"b\"}");
  EXPECT_THAT(Summary(all), ElementsAre("a", "b"));
  EXPECT_EQ(std::get<Request>(all[1]).line, 4);
  // Half a character is none.
  EXPECT_THAT(Summary(ReadAll("\xE3\x80\n\xE3")), ElementsAre("<invalid_utf8>", "<invalid_utf8>"));
  EXPECT_THAT(Summary(ReadAll(" a \f\n\f\n", Options(), "in.txt")), ElementsAre(" a \f"));
}

TEST(RequestReader, TheMarkOfOldEditorsEndsAFile) {
  for (const char* end : {"\x1a", "\n\x1a", "\r\n\x1a", "\n\x1a\r\n", "\n\x1a\n", "\x1a\n"})
    EXPECT_THAT(Summary(ReadAll(std::string("{\"prompt\":\"a\"}") + end)), ElementsAre("a")) << end;
  EXPECT_THAT(Summary(ReadAll("{\"prompt\":\"a\"}\n\x1a\n{\"prompt\":\"b\"}")),
              ElementsAre("a", "<invalid_json>", "b"));
  // A chunk ends right behind it.
  std::string text;
  while (text.size() < (256 << 10) - 40) text += "{\"prompt\":\"abcdef\"}\n";
  const auto count = ReadAll(text).size();
  text += std::string((256 << 10) - 2 - text.size(), ' ') + "\x1a\n{\"prompt\":\"b\"}";
  EXPECT_EQ(ReadAll(text).size(), count + 2);
}

TEST(RequestReader, WithoutLineFeedsLinesEndInReturns) {
  const auto all = ReadAll("{\"prompt\":\"a\"}\r\r{\"prompt\":\"b\"}\r");
  EXPECT_THAT(Summary(all), ElementsAre("a", "b"));
  EXPECT_EQ(std::get<Request>(all[1]).line, 3);
  EXPECT_THAT(Summary(ReadAll("{\"prompt\":\"a\"}\r")), ElementsAre("a"));
  EXPECT_THAT(Summary(ReadAll("one\rtwo", Options(), "in.txt")), ElementsAre("one", "two"));
  EXPECT_THAT(Summary(ReadAll("one\rtwo\nthree", Options(), "in.txt")),
              ElementsAre("one\rtwo", "three"));
}

TEST(RequestReader, AnEmptyFileHasNoLines) {
  EXPECT_TRUE(ReadAll("").empty());
  EXPECT_TRUE(ReadAll("\n\n").empty());
  EXPECT_TRUE(ReadAll("\xEF\xBB\xBF").empty());
}

TEST(RequestReader, ResynchronisesAfterALineThatIsTooLong) {
  ReaderOptions options = Options();
  options.max_line_bytes = 32;
  const std::string fits = R"({"prompt":")" + std::string(19, 'x') + "\"}";
  ASSERT_EQ(fits.size(), 32u);
  const std::string over(1 << 20, 'y');
  const auto all =
      ReadAll(fits + "\r\n" + fits + " \n" + over + "\n" + fits + "\n" + over, options);
  EXPECT_THAT(Summary(all), ElementsAre(std::string(19, 'x'), "<line_too_long>", "<line_too_long>",
                                        std::string(19, 'x'), "<line_too_long>"));
  EXPECT_EQ(std::get<LineError>(all[2]).message, "line 3: has 1048576 bytes; at most 32 are taken");
}

TEST(RequestReader, TheLineBeatsTheFlags) {
  ReaderOptions options = Options();
  options.defaults.temperature = 0.7;
  options.defaults.stop = {"END"};
  options.defaults.num_logprobs = 3;
  options.defaults.seed = 5;
  const Request by_flags = One(R"({"prompt":"a"})", options);
  EXPECT_EQ(by_flags.sampling.temperature, 0.7);
  EXPECT_THAT(by_flags.sampling.stop, ElementsAre("END"));
  EXPECT_EQ(by_flags.sampling.num_logprobs, 3);
  const Request by_line =
      One(R"({"prompt":"a","temperature":0,"stop":[],"logprobs":null,"seed":-1,"max_tokens":null})",
          options);
  EXPECT_EQ(by_line.sampling.temperature, 0.0);
  EXPECT_TRUE(by_line.sampling.stop.empty());
  EXPECT_EQ(by_line.sampling.num_logprobs, -1);
  EXPECT_EQ(by_line.sampling.seed, UINT64_MAX);
  EXPECT_EQ(by_line.sampling.max_tokens, 8);
  EXPECT_EQ(One(R"({"prompt":"a","seed":18446744073709551615})").sampling.seed, UINT64_MAX);
  EXPECT_EQ(One(R"({"prompt":"a","top_k":-1})").sampling.top_k, 0);
  EXPECT_THAT(One(R"({"prompt":"a","stop":"x"})").sampling.stop, ElementsAre("x"));
}

TEST(RequestReader, AnEmptyPromptIsTheStartToken) {
  EXPECT_THAT(One(R"({"prompt":""})").prompt, ElementsAre(FakeTokenizer::kStart));
  ReaderOptions options = Options();
  options.start_token = -1;
  EXPECT_EQ(Bad(R"({"prompt":""})", options).code, "empty_prompt");
  EXPECT_EQ(Bad(R"({"token_ids":[]})").code, "empty_prompt");
}

TEST(RequestReader, ChecksTheLengthWithTheNumbers) {
  EXPECT_EQ(One(R"({"token_ids":[5,5],"max_tokens":62})").sampling.max_tokens, 62);
  const LineError error = Bad(R"({"token_ids":[5,5],"max_tokens":63,"custom_id":"me"})");
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.custom_id, "me");
  EXPECT_THAT(
      error.message,
      HasSubstr("line 1: prompt of 2 tokens + max_tokens 63 is over the model's 64 positions"));
  EXPECT_EQ(Bad(R"({"prompt":"a","max_tokens":9223372036854775807})").code,
            "context_length_exceeded");
  EXPECT_EQ(Bad(R"({"prompt":")" + std::string(100, 'x') + "\"}").code, "context_length_exceeded");
}

TEST(RequestReader, CustomIdsAreKept) {
  EXPECT_EQ(One(R"({"prompt":"a"})").custom_id, "1");
  EXPECT_EQ(One(R"({"prompt":"a","custom_id":""})").custom_id, "1");
  EXPECT_EQ(One(R"({"prompt":"a","custom_id":"\u001b[2J\n"})").custom_id, "\x1b[2J\n");
  EXPECT_EQ(
      One(R"({"prompt":"a","custom_id":")" + std::string(64 << 10, 'i') + "\"}").custom_id.size(),
      64u << 10);
  EXPECT_EQ(Bad(R"({"prompt":"a","custom_id":")" + std::string((64 << 10) + 1, 'i') + "\"}").code,
            "invalid_value");
  EXPECT_THAT(
      Summary(ReadAll(
          "{\"prompt\":\"a\",\"custom_id\":\"x\"}\n{\"prompt\":\"b\",\"custom_id\":\"x\"}")),
      ElementsAre("a", "b"));
}

TEST(RequestReader, RefusesFilesThatHaveNoLines) {
  const TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  const auto open = [&](const std::filesystem::path& path) {
    std::string message;
    EXPECT_EQ(CodeOf([&] { RequestReader(path, tokenizer, Options()); }, &message),
              ErrorCode::kInput)
        << path;
    return message;
  };
  EXPECT_THAT(open(folder / "missing"), HasSubstr("missing: cannot be opened: No such file"));
  EXPECT_THAT(open(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(open(folder.Write("file", "x") / "below"), HasSubstr("Not a directory"));
  RequestReader nothing("/dev/null", tokenizer, Options());
  EXPECT_EQ(nothing.Next(), std::nullopt);
}

// A run reads the input again, long after it was looked through.
TEST(RequestReader, ExpectedLinesAreThoseOfTheScan) {
  const TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  const std::string first = R"({"prompt":"a"})";
  const std::string second = R"({"prompt":"b"})";
  const auto path = folder.Write("in.jsonl", first + "\n\n" + second + "\n");
  const std::vector<uint32_t> hashes = ScanInput(path, tokenizer, Options(), 2).line_hashes;
  ASSERT_EQ(hashes.size(), 2u);
  const auto texts_of = [&](const std::string& bytes) {
    folder.Write("in.jsonl", bytes);
    RequestReader reader(path, tokenizer, Options());
    reader.Expect(hashes);
    std::vector<std::string> texts;
    try {
      while (auto next = reader.Next()) texts.push_back(TextOf(std::get<Request>(*next)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResume);
      EXPECT_THAT(error.what(), HasSubstr(" when the run began; "));
      texts.push_back("<changed>");
    }
    return texts;
  };
  EXPECT_THAT(texts_of(first + "\n\n" + second + "\n"), ElementsAre("a", "b"));
  EXPECT_THAT(texts_of(first + "\n\n" + R"({"prompt":"c"})" + "\n"), ElementsAre("a", "<changed>"));
  EXPECT_THAT(texts_of(first + "\n" + second + "\n"), ElementsAre("a", "<changed>"));  // moved
  EXPECT_THAT(texts_of(first + "\n\n" + second + "\n" + first), ElementsAre("a", "b", "<changed>"));
}

}  // namespace
}  // namespace spillway
