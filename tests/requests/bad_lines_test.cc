// Lines that cannot be run: each gives one error with a stable code, and the lines around it are
// not affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/requests/reader.h"
#include "src/unicode/utf8.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ReaderOptions Options() { return OptionsFor(2048); }

std::vector<RequestOrError> ReadAll(std::string_view bytes) {
  const TemporaryFolder folder;
  const FakeTokenizer tokenizer;
  RequestReader reader(folder.Write("in.jsonl", bytes), tokenizer, Options());
  std::vector<RequestOrError> all;
  while (auto next = reader.Next()) all.push_back(std::move(*next));
  return all;
}

struct BadLine {
  std::string line;
  const char* code;
  const char* message;  // a part of it
};

std::string With(const std::string& key) { return R"({"prompt":"a",)" + key + "}"; }

std::string Batch(const std::string& keys) {
  return R"({"method":"POST","url":"/v1/completions",)" + keys + "}";
}

// A line around the string "a" + `bytes`.
std::string Prompt(const std::string& bytes) { return R"({"prompt":"a)" + bytes + "\"}"; }

std::string Deep(char open, std::size_t levels) { return std::string(levels, open); }

std::string Times(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

std::vector<BadLine> SyntaxLines() {
  return {
      {"{", "invalid_json", "column 2: syntax error"},
      {"}", "invalid_json", "must be a JSON object"},
      {"x", "invalid_json", "must be a JSON object, one on each line"},
      {"Once upon a time", "invalid_json", "plain text is read from files whose name ends in .txt"},
      {R"({"prompt":"a"} )"
       "x",
       "invalid_json", "column 16: "},
      {R"({"prompt":"a"}{"prompt":"b"})", "invalid_json", "column 15: "},
      {R"({"prompt":"a",})", "invalid_json", "column 15: "},
      {R"({'prompt':'a'})", "invalid_json", "column 2: "},
      {R"({"prompt":"a)", "invalid_json", "missing closing quote"},
      {R"({"prompt":"a\q"})", "invalid_json", "column 14: "},
      {R"({"prompt":"a\u12g4"})", "invalid_json", "4 hex digits"},
      {R"({"prompt":a})", "invalid_json", "column 11: "},
      {R"({prompt:"a"})", "invalid_json", "column 2: "},
      {R"({"prompt":"a" // comment)", "invalid_json", "column 15: "},
      {R"({"prompt":"a","temperature":nan})", "invalid_json", "column 30: "},
      {R"({"prompt":"a","temperature":Inf})", "invalid_json", "column 29: "},
      {R"({"prompt":"a","temperature":.5})", "invalid_json", "column 29: "},
      {R"({"prompt":"a","max_tokens":+5})", "invalid_json", "column 28: "},
      {R"({"prompt":"a","max_tokens":05})", "invalid_json", "column 29: "},
      {With(R"("temperature":1e999)"), "invalid_json", "number overflow"},
      {With(R"("temperature":-1e999)"), "invalid_json", "number overflow"},
      {With(R"("seed":1)" + std::string(1'000'000, '0')), "invalid_json", "number overflow"},
      {"{\"prompt\":\"a\tb\"}", "invalid_json", "control character"},
      {"{\"prompt\":\"a\x1b[2Jb\"}", "invalid_json", "control character"},
      {"\xEF\xBB\xBF{\"prompt\":\"a\"}", "invalid_json", "column 1: a byte order mark"},
      {Deep('[', 65), "too_deep", "deeper than 64 levels"},
      {Deep('[', 1'000'000), "too_deep", "deeper than 64 levels"},
      {R"({"prompt":)" + Deep('[', 100'000), "too_deep", "deeper than 64 levels"},
      {Times("{\"a\":", 50'000), "too_deep", "64 levels"},
      {R"({"token_ids":[7)" + Times(",7", 262'143) + "]}", "too_many_values", "262144 values"},
      {R"({"prompt":"a","prompt":"b"})", "duplicate_key", "key \"prompt\" is given twice"},
      {With(R"("max_tokens":1,"max_tokens":1)"), "duplicate_key", "\"max_tokens\" is given twice"},
      {With(R"("metadata":{"k":1,"\u006b":2})"), "duplicate_key", "key \"k\" is given twice"},
  };
}

std::vector<BadLine> TextLines() {
  return {
      {Prompt("\xff"), "invalid_utf8", "column 13: byte 0xff is not valid UTF-8"},
      {Prompt("\x80"), "invalid_utf8", "column 13: byte 0x80"},
      {Prompt("\xc3"), "invalid_utf8", "column 13: byte 0xc3"},
      {Prompt("\xc0\xaf"), "invalid_utf8", "column 13: byte 0xc0"},          // overlong '/'
      {Prompt("\xe0\x80\xaf"), "invalid_utf8", "column 13: byte 0xe0"},      // overlong
      {Prompt("\xf0\x80\x80\xaf"), "invalid_utf8", "column 13: byte 0xf0"},  // overlong
      {Prompt("é\xed\xa0\x80"), "invalid_utf8", "column 15: byte 0xed"},     // the surrogate U+D800
      {Prompt("\xf4\x90\x80\x80"), "invalid_utf8", "column 13: byte 0xf4"},  // over U+10FFFF
      {"\xff\xfe{", "invalid_utf8", "column 1: byte 0xff"},                  // UTF-16's mark
      {"\xfe\xff{", "invalid_utf8", "column 1: byte 0xfe"},
      {Prompt(std::string(1, '\0')), "nul_byte", "column 13: a NUL byte"},
      {R"({"prompt":"a"})" + std::string(1, '\0'), "nul_byte", "column 15: a NUL byte"},
      {std::string(3, '\0'), "nul_byte", "column 1: a NUL byte"},
      {Prompt("\\ud800"), "invalid_json", "surrogate"},
      {Prompt("\\ud800\\u0041"), "invalid_json", "surrogate"},
      {Prompt("\\udc00"), "invalid_json", "surrogate"},
  };
}

std::vector<BadLine> FormLines() {
  return {
      {"null", "invalid_value", "must be a JSON object"},
      {"[]", "invalid_value", "must be a JSON object"},
      {"\"prompt\"", "invalid_value", "must be a JSON object"},
      {"17", "invalid_value", "must be a JSON object"},
      {"{}", "missing_key", "has no key \"prompt\""},
      {R"({"max_tokens":1})", "missing_key", "has no key \"prompt\""},
      {R"({"prompt":"a","promt":"b"})", "unknown_key",
       R"(unknown key "promt"; did you mean "prompt"?)"},
      {R"({"prompt":"a","Max_tokens":1})", "unknown_key",
       R"(unknown key "Max_tokens"; did you mean "max_tokens"?)"},
      {R"({"prompt":"a","messages":[]})", "invalid_value", R"(both "messages" and "prompt")"},
      {R"({"prompt":"a","token_ids":[5]})", "invalid_value", "both \"prompt\" and \"token_ids\""},
      {R"({"prompt":"a","custom_id":7})", "invalid_value", "\"custom_id\" must be a string"},
      {R"({"prompt":"a","temperature":NaN,"metadata":NaN})", "invalid_value",
       "\"temperature\" holds NaN or Infinity"},
      {R"({"prompt":"a","custom_id":Infinity})", "invalid_value", "\"custom_id\" holds NaN"},
      {R"({"body":{"prompt":"a","stop":["a",NaN]}})", "invalid_value", "\"stop\" holds NaN"},
      {R"({"prompt":"a","max_new_tokens":NaN})", "unknown_key", "did you mean \"max_tokens\"?"},
      {R"({"prompt":"a","metadata":NaN,"metadata":1})", "duplicate_key", "given twice"},
      {R"({"prompt":"a","do_sample":true})", "unsupported_value",
       "\"do_sample\": true beside a temperature of 0"},
      {R"({"prompt":"a","temperature":1,"do_sample":false})", "unsupported_value",
       "\"do_sample\": false beside a temperature of 1"},
      {R"({"prompt":"a","num_return_sequences":2})", "unsupported_value", "num_return_sequences"},
      {R"({"method":"POST","url":"/v1/completions"})", "missing_key", "has no key \"body\""},
      {R"({"method":"GET","url":"/v1/completions","body":{}})", "unsupported_value",
       R"("method" must be "POST", not "GET")"},
      {R"({"method":1,"url":"/v1/completions","body":{}})", "invalid_value",
       "\"method\" must be a string"},
      {R"({"method":"POST","url":"/v1/embeddings","body":{}})", "unsupported_value",
       R"(must be "/v1/completions" or "/v1/chat/completions", not "/v1/embeddings")"},
      {R"({"method":"POST","url":"/v1/chat/completions","body":{}})", "missing_key",
       R"(has no key "messages")"},
      {R"({"method":"POST","url":"/v1/completions","body":{"messages":[]}})", "invalid_value",
       R"("messages" belong to "url": "/v1/chat/completions")"},
      {R"({"messages":[{"role":"user","content":"a"}]})", "no_chat_template", "--chat-template"},
      {R"({"messages":[],"promt":1})", "unknown_key", "promt"},
      {Batch(R"("body":"x")"), "invalid_value", "\"body\" must be an object"},
      {Batch(R"("body":{})"), "missing_key", "has no key \"prompt\""},
      {Batch(R"("body":{"prompt":"a","max_token":1})"), "unknown_key",
       R"(unknown key "max_token" in "body"; did you mean "max_tokens"?)"},
      {Batch(R"("body":{"prompt":"a"},"prompt":"b")"), "unknown_key",
       "unknown key \"prompt\" beside \"body\""},
      {Batch(R"("body":{"prompt":"a","custom_id":"b"})"), "unknown_key",
       "unknown key \"custom_id\" in \"body\""},
  };
}

std::vector<BadLine> PromptLines() {
  return {
      {R"({"prompt":null})", "invalid_value", "\"prompt\" must be a string or a list"},
      {R"({"prompt":5})", "invalid_value", "\"prompt\" must be a string or a list"},
      {R"({"prompt":{}})", "invalid_value", "\"prompt\" must be a string or a list"},
      {R"({"prompt":["a","b"]})", "invalid_value", "several prompts"},
      {R"({"prompt":[[1],[2]]})", "invalid_value", "several prompts"},
      {R"({"prompt":[1,"a"]})", "invalid_value", "several prompts"},
      {R"({"prompt":[]})", "empty_prompt", "\"prompt\" is empty"},
      {R"({"prompt":[1.5]})", "invalid_value", "integers only"},
      {R"({"prompt":[1e300]})", "invalid_value", "integers only"},
      {R"({"prompt":[true]})", "invalid_value", "integers only"},
      {R"({"prompt":[1,300]})", "token_out_of_range",
       "token id 300 at index 1; the model's ids are 0 to 299"},
      {R"({"prompt":[-1]})", "token_out_of_range", "token id -1 at index 0"},
      {R"({"prompt":[18446744073709551615]})", "token_out_of_range",
       "token id 18446744073709551615"},
      {R"({"prompt":[4294967301]})", "token_out_of_range", "token id 4294967301"},
      {R"({"token_ids":"a"})", "invalid_value", "\"token_ids\" must be a list"},
      {R"({"token_ids":[]})", "empty_prompt", "\"token_ids\" is empty"},
      {R"({"prompt":"a","max_tokens":2048})", "context_length_exceeded",
       "prompt of 2 tokens + max_tokens 2048"},
  };
}

std::vector<BadLine> SamplingLines() {
  std::vector<BadLine> lines;
  const auto add = [&](const std::string& key, const char* message) {
    lines.push_back({With(key), "invalid_value", message});
  };
  for (const char* value :
       {"0", "-1", "1.5", "\"5\"", "true", "[]", "18446744073709551615", "1e300"}) {
    add(R"("max_tokens":)" + std::string(value),
        "\"max_tokens\" must be an integer of at least 1, not ");
  }
  for (const char* value : {"-1", "0.5", "\"0\""})
    add(R"("min_tokens":)" + std::string(value), "\"min_tokens\" must be");
  for (const char* value : {"-0.1", "100.5", "1e300", "\"1\"", "false", "{}"}) {
    add(R"("temperature":)" + std::string(value),
        "\"temperature\" must be a number from 0 to 100, not ");
  }
  for (const char* value : {"0", "-0.5", "1.01", "7", "\"1\""}) {
    add(R"("top_p":)" + std::string(value),
        "\"top_p\" must be a number over 0 and at most 1, not ");
  }
  for (const char* value : {"-2", "1.5", "\"3\"", "9223372036854775808"})
    add(R"("top_k":)" + std::string(value), "\"top_k\" must be");
  for (const char* value :
       {"1.5", "\"7\"", "18446744073709551616", "-9223372036854775809", "[1]"}) {
    add(R"("seed":)" + std::string(value), "\"seed\" must be an integer of 64 bits, not ");
  }
  for (const char* value : {"-1", "21", "true", "1.5", "\"1\""})
    add(R"("logprobs":)" + std::string(value), "\"logprobs\" must be");
  for (const char* value : {"1", "\"yes\""})
    add(R"("ignore_eos":)" + std::string(value), "\"ignore_eos\" must be true or false");
  for (const char* value : {"5", "{}", "[1]", "[\"a\",null]"})
    add(R"("stop":)" + std::string(value), "\"stop\" must be a string or a list");
  add(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
      "at most 16 strings, not 17");
  add(R"("stop":")" + std::string(5000, 's') + "\"", "has 5000 bytes");
  add(R"("min_tokens":9,"max_tokens":8)", "\"min_tokens\" is 9, over \"max_tokens\" 8");
  return lines;
}

// Each among good lines: one error for it, and nothing for its neighbours.
void Check(const std::vector<BadLine>& lines) {
  std::string file = "{\"prompt\":\"first\"}\n";
  for (const BadLine& bad : lines) file += bad.line + "\n{\"prompt\":\"next\"}\n";
  const auto all = ReadAll(file);
  ASSERT_EQ(all.size(), 1 + 2 * lines.size());
  for (std::size_t place = 0; place < lines.size(); ++place) {
    const BadLine& bad = lines[place];
    const std::string shown = bad.line.substr(0, 120);
    const auto* error = std::get_if<LineError>(&all[1 + 2 * place]);
    ASSERT_NE(error, nullptr) << shown;
    EXPECT_EQ(error->code, bad.code) << shown << "\n" << error->message;
    EXPECT_THAT(error->message, HasSubstr(bad.message)) << shown;
    EXPECT_EQ(error->line, static_cast<int64_t>(2 + 2 * place));
    EXPECT_THAT(error->message, StartsWith("line " + std::to_string(error->line) + ": "));
    EXPECT_LT(error->message.size(), 300u) << shown;
    for (const char byte : error->message)
      EXPECT_GE(static_cast<unsigned char>(byte), 0x20) << error->message;
    EXPECT_TRUE(IsValidUtf8(error->message)) << shown;
    EXPECT_TRUE(std::holds_alternative<Request>(all[2 + 2 * place])) << "after " << shown;
  }
}

TEST(BadLines, Syntax) { Check(SyntaxLines()); }
TEST(BadLines, Text) { Check(TextLines()); }
TEST(BadLines, Form) { Check(FormLines()); }
TEST(BadLines, Prompt) { Check(PromptLines()); }
TEST(BadLines, Sampling) { Check(SamplingLines()); }

TEST(OddLines, AreTakenAsTheyAre) {
  for (const std::string& line : std::vector<std::string>{
           R"({"prompt":"\ud83d\ude00 \u0001 \uffff \" \\ \/"})",
           Prompt("\xef\xbf\xbf\xef\xbb\xbf\x7f"), With(R"("metadata":{"a":[[[]]]})"),
           With(R"("temperature":1e-320)"), With(R"("temperature":100)"),
           With(R"("seed":-9223372036854775808)"), With(R"("top_p":1)"),
           With(R"("top_k":9223372036854775807)"), " \t{ \"prompt\" : \"a\" }\t",
           R"({"prompt":"</s>"})", R"({"custom_id":null,"prompt":"a"})",
           With(R"("metadata":)" + std::string(62, '[') + std::string(62, ']')),
           // Characters that are none, or end C's strings, are characters of a prompt all the same.
           Prompt("\xef\xbf\xbe"), Prompt("\\ufffe"), Prompt("\\u0000"), With(R"("stop":"\u0000")"),
           With(R"("\u0000":1)"), R"({"prompt":"a","":1})"}) {
    const auto all = ReadAll(line);
    ASSERT_EQ(all.size(), 1u);
    const auto* error = std::get_if<LineError>(&all[0]);
    EXPECT_EQ(error, nullptr) << line << "\n" << error->message;
  }
}

TEST(BadLine, CarriesItsCustomIdOnceItIsKnown) {
  const auto all = ReadAll("{\"custom_id\":\"me\",\"prompt\":5}\n{\"custom_id\":\"me\",");
  EXPECT_EQ(std::get<LineError>(all[0]).custom_id, "me");
  EXPECT_EQ(std::get<LineError>(all[1]).custom_id, "");
}

// Changes one good line at random: bytes flipped, removed, doubled or taken from what breaks
// parsers.
std::string Mutate(std::string line, std::mt19937& generator) {
  static const std::vector<std::string> kPieces = {"\"",
                                                   "\\",
                                                   "{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   ",",
                                                   ":",
                                                   "\\u0000",
                                                   "\\ud800",
                                                   "\xff",
                                                   "\xc3",
                                                   std::string(1, '\0'),
                                                   "1e999",
                                                   "-",
                                                   "null",
                                                   "true",
                                                   "\"prompt\"",
                                                   "\"body\":{",
                                                   "\t",
                                                   "\r",
                                                   "\x1b",
                                                   "99999999999999999999",
                                                   "\xef\xbb\xbf",
                                                   "\xef\xbf\xbe",
                                                   "é"};
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(generator);
  };
  for (std::size_t change = 1 + below(4); change > 0 && !line.empty(); --change) {
    const std::size_t at = below(line.size());
    switch (below(4)) {
      case 0:
        line[at] = static_cast<char>(below(256));
        break;
      case 1:
        line.erase(at, 1 + below(8));
        break;
      case 2:
        line.insert(at, line.substr(below(line.size()), below(12)));
        break;
      default:
        line.insert(at, kPieces[below(kPieces.size())]);
        break;
    }
  }
  std::erase(line, '\n');
  return line;
}

TEST(BadLine, RandomChangesGiveOneAnswerPerLine) {
  const std::vector<std::string> seeds = {
      R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"hi","max_tokens":32,"stop":["\n"]}})",
      R"({"prompt":"h\u00e9llo","temperature":0.5,"top_p":0.9,"seed":7,"logprobs":2,"n":1,"user":"x"})",
      R"({"token_ids":[2,15,299],"max_tokens":3,"min_tokens":1,"ignore_eos":true,"top_k":4})"};
  std::mt19937 generator(20);
  std::string file;
  int64_t num_lines = 0;
  for (int change = 0; change < 20'000; ++change) {
    const std::string line =
        Mutate(seeds[static_cast<std::size_t>(change) % seeds.size()], generator);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    file += line + "\n";
    ++num_lines;
  }
  const auto all = ReadAll(file);
  EXPECT_EQ(static_cast<int64_t>(all.size()), num_lines);
  std::set<std::string> codes;
  for (const auto& item : all) {
    const auto* error = std::get_if<LineError>(&item);
    if (error == nullptr) {
      EXPECT_FALSE(std::get<Request>(item).prompt.empty());
      continue;
    }
    codes.insert(error->code);
    EXPECT_TRUE(IsValidUtf8(error->message)) << error->message;
    EXPECT_LT(error->message.size(), 400u) << error->message;
  }
  EXPECT_GE(codes.size(), 7u);
}

}  // namespace
}  // namespace spillway
