// Every fault of a tokenizer's files (docs/reliability.md, "Tokenizer files"): refused with one
// message that names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "spillway/error.h"
#include "src/tokenizer/chars_map.h"
#include "src/tokenizer/tokenizer.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::filesystem::path kGolden = SPILLWAY_SOURCE_DIR "/tests/tokenizer/golden";

class FaultsTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) { owned_.Write(name, bytes); }

  static std::string Bytes(const std::filesystem::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // Opens the folder, which must fail, and checks what every message must be.
  void ExpectRefusal(const std::string& part, ErrorCode code = ErrorCode::kTokenizer,
                     int64_t vocab_rows = 1000) {
    try {
      OpenTokenizer(folder_, vocab_rows);
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr("; ")) << "says nothing to do";
      EXPECT_LE(ErrorLine(code, error.what()).size(), 300u);
      for (const char c : std::string(error.what()))
        EXPECT_GE(static_cast<unsigned char>(c), 0x20) << error.what();
    }
  }

  TemporaryFolder owned_;
  std::filesystem::path folder_ = owned_.path();
};

json SmallModel() {
  return json::parse(
      R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "ByteLevel"}, "post_processor": null,
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

// Steps that make much of little: refused where they are read, or when a text shows it.
TEST_F(FaultsTest, APostProcessorOfManyTokens) {
  json model = SmallModel();
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json token = {{"SpecialToken", {{"id", "a"}, {"type_id", 0}}}};
  json single = json::array({text});
  for (int i = 0; i < 100; ++i) single.push_back(token);
  json post = {{"type", "TemplateProcessing"}, {"single", single}};
  for (const int num_ids : {11, 2000}) {
    post["special_tokens"]["a"] = {{"ids", std::vector<int>(static_cast<std::size_t>(num_ids), 0)}};
    model["post_processor"] = post;
    Write("tokenizer.json", model.dump());
    ExpectRefusal("adds more than 1024 tokens");
  }
  post["special_tokens"]["a"] = {{"ids", std::vector<int>(10, 0)}};
  model["post_processor"] = {{"type", "Sequence"}, {"processors", {post, post}}};
  Write("tokenizer.json", model.dump());
  ExpectRefusal("adds more than 1024 tokens");
  model["post_processor"] = post;
  Write("tokenizer.json", model.dump());
  EXPECT_EQ(OpenTokenizer(folder_, 1000)->Encode("a", SpecialText::kPlain).size(), 1001U);
}

TEST_F(FaultsTest, StepsThatDoubleAText) {
  json model = SmallModel();
  const json twice = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const json byte_level = {{"type", "ByteLevel"}};
  const auto expect_growth = [&] {
    Write("tokenizer.json", model.dump());
    const auto tokenizer = OpenTokenizer(folder_, 1000);
    try {
      tokenizer->Encode("a\xC3\xA4", SpecialText::kPlain);
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("its steps make over"));
    }
  };
  model["normalizer"] = {{"type", "Sequence"}, {"normalizers", json::array_t(64, twice)}};
  expect_growth();
  model["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", std::string(100'000, 'b')}};
  expect_growth();
  model["normalizer"] = nullptr;
  model["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array_t(64, byte_level)}};
  expect_growth();
}

TEST_F(FaultsTest, ChainsOfManySteps) {
  json model = SmallModel();
  model["normalizer"] = {{"type", "Sequence"},
                         {"normalizers", json::array_t(65, json{{"type", "NFC"}})}};
  Write("tokenizer.json", model.dump());
  ExpectRefusal("the normalizer has more than 64 steps");
  model["normalizer"] = nullptr;
  model["pre_tokenizer"] = {{"type", "Sequence"},
                            {"pretokenizers", json::array_t(65, json{{"type", "ByteLevel"}})}};
  Write("tokenizer.json", model.dump());
  ExpectRefusal("the pre-tokenizer has more than 64 steps");
}

// Python's json module writes these, and takes the last of equal keys.
TEST_F(FaultsTest, SettingsInPythonsJsonAreTaken) {
  Write("tokenizer.json", SmallModel().dump());
  Write("tokenizer_config.json", R"({"model_max_length":Infinity,"a":1,"a":NaN})");
  EXPECT_NO_THROW(OpenTokenizer(folder_, 1000));
  Write("tokenizer_config.json", std::string("{}\0x", 4));
  ExpectRefusal("NUL byte at byte 3");
}

TEST_F(FaultsTest, TextBehindANulByteIsRefused) {
  Write("tokenizer.json", SmallModel().dump() + std::string("\0 x", 3));
  ExpectRefusal("has a NUL byte");
}

TEST_F(FaultsTest, MissingFiles) {
  ExpectRefusal("no tokenizer.json", ErrorCode::kModelMissing);
  Write("vocab.json", R"({"a":0})");
  ExpectRefusal("merges.txt", ErrorCode::kModelMissing);
  std::filesystem::rename(folder_ / "vocab.json", folder_ / "merges.txt");
  ExpectRefusal("vocab.json", ErrorCode::kModelMissing);
}

struct VocabCase {
  const char* vocab;
  const char* merges;
  const char* part;
};

TEST_F(FaultsTest, VocabAndMerges) {
  const VocabCase cases[] = {
      {"", "", "is empty"},
      {"{", "", "not valid JSON"},
      {"[1]", "", "does not hold a JSON object"},
      {"\"a\"", "", "does not hold a JSON object"},
      {"{}", "", "vocabulary is empty"},
      {R"({"a":-1})", "", "-1"},
      {R"({"a":2147483648})", "", "2147483648"},
      {R"({"a":1e3})", "", "not an integer"},
      {R"({"a":1.5})", "", "not an integer"},
      {R"({"a":"0"})", "", "string"},
      {R"({"a":null})", "", "null"},
      {R"({"a":0,"a":1})", "", "occurs twice"},
      {R"({"a":0,"b":0})", "", "belongs to two tokens"},
      {R"({"a":1000})", "", "id 1000, but the model's embedding has 1000 rows"},
      {R"({"a\u001b[2J\u0000":1000})", "", "\\x1b"},
      {"{\"\xFF\":0}", "", "not valid JSON"},
      {R"({"a":0,"b":1,"ab":2})", "a", "line 1"},
      {R"({"a":0,"b":1,"ab":2})", "#version: 0.2\na b\n\na b", "line 3"},
      {R"({"a":0,"b":1,"ab":2})", "a b c", "line 1"},
      {R"({"a":0,"b":1,"ab":2})", "a  b", "line 1"},
      {R"({"a":0,"b":1,"ab":2})", " a", "line 1"},
      {R"({"a":0,"b":1,"ab":2})", "a c", "\"c\", which has no id"},
      {R"({"a":0,"b":1})", "a b", "\"ab\", which has no id"},
      {R"({"a":0})", "\xFF \xFE", "not valid UTF-8"},
  };
  for (const VocabCase& fault : cases) {
    SCOPED_TRACE(std::string(fault.vocab) + " / " + fault.merges);
    Write("vocab.json", fault.vocab);
    Write("merges.txt", *fault.merges == '\0' ? "#version: 0.2\n" : fault.merges);
    ExpectRefusal(fault.part);
  }
}

TEST_F(FaultsTest, DepthBomb) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string bomb;
    for (int i = 0; i < 1000000; ++i) bomb += open;
    Write("tokenizer.json", bomb);
    ExpectRefusal("nests deeper than 64 levels");
  }
}

TEST_F(FaultsTest, HoldsMoreThanAnyTokenizer) {
  std::string values = "{\"a\":[";
  for (int i = 0; i < 8000001; ++i) values += "1,";
  Write("tokenizer.json", values + "1]}");
  ExpectRefusal("holds more than 8000000 values");
}

struct JsonCase {
  const char* pointer;
  const char* value;
  const char* part;
};

TEST_F(FaultsTest, TokenizerJson) {
  const std::string long_token = '"' + std::string(2000, 'x') + '"';
  const std::string added = R"([{"id":3,"content":)" + long_token + "}]";
  const JsonCase cases[] = {
      {"/model", "null", "has no \"model\""},
      {"/model", "[]", "has no \"model\""},
      {"/model/type", "\"Unigram\"", "\"Unigram\""},
      {"/model/type", "\"Word\\u001bPiece\"", "\\x1b"},
      {"/model/type", "3", "\"type\" is not a string"},
      {"/model/vocab", "[]", "not an object"},
      {"/model/vocab", "null", "not an object"},
      {"/model/vocab/a", "-1", "-1"},
      {"/model/vocab/a", "1", "belongs to two tokens"},
      {"/model/vocab/a", "5000", "5000, but the model's embedding has 1000 rows"},
      {"/model/merges", "null", "\"merges\" is not a list"},
      {"/model/merges", "[\"a\"]", "merge 1"},
      {"/model/merges", "[\"a b c\"]", "merge 1"},
      {"/model/merges", "[[\"a\"]]", "merge 1"},
      {"/model/merges", "[[\"a\",1]]", "merge 1"},
      {"/model/merges", "[1]", "merge 1"},
      {"/model/merges", "[\"a z\"]", "\"z\", which has no id"},
      {"/model/merges", "[[\"b\",\"a\"]]", "\"ba\", which has no id"},
      {"/model/dropout", "0.1", "dropout"},
      {"/model/continuing_subword_prefix", "\"##\"", "continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "\"</w>\"", "end_of_word_suffix"},
      {"/model/unk_token", "\"<unk>\"", "\"<unk>\" has no id"},
      {"/model/fuse_unk", "1", "not true or false"},
      {"/normalizer", R"({"type":"Nmt"})", "\"Nmt\""},
      {"/normalizer",
       R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]})",
       "\"Precompiled\""},
      {"/normalizer", R"({"type":"Replace","pattern":{"Regex":"(a+)+"},"content":""})", "(a+)+"},
      {"/normalizer", R"({"type":"Replace","pattern":{"Regex":"a*"},"content":""})", "empty text"},
      {"/normalizer", R"({"type":"Replace","pattern":{"String":""},"content":"x"})", "empty text"},
      {"/normalizer", R"("NFC")", "not an object"},
      {"/pre_tokenizer", R"({"type":"UnicodeScripts"})", "\"UnicodeScripts\""},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated"})",
       "(a+)+$"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"(?<=a)b"},"behavior":"Isolated"})",
       "is not supported: \"(?<=\""},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"String":""},"behavior":"Isolated"})",
       "empty text"},
      {"/pre_tokenizer", R"({"type":"Split","pattern":{"String":" "},"behavior":"Dropped"})",
       "\"Dropped\""},
      {"/pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})", "one character"},
      {"/pre_tokenizer", R"({"type":"Metaspace","prepend_scheme":"last"})", "\"last\""},
      {"/post_processor", R"({"type":"OtherProcessing"})", "\"OtherProcessing\""},
      {"/post_processor", R"({"type":"BertProcessing","sep":["</s>",2],"cls":["<s>"]})", "\"cls\""},
      {"/post_processor", R"({"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1000]})",
       "1000 rows"},
      {"/post_processor", R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "0 times"},
      {"/post_processor",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}],"special_tokens":{}})",
       "\"<s>\" has no ids"},
      {"/post_processor",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}},{"Sequence":{"id":"A"}}],"special_tokens":{"x":{"ids":[1000]}}})",
       "1000 rows"},
      {"/decoder", R"({"type":"WordPiece"})", "\"WordPiece\""},
      {"/decoder", R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})",
       "\"ByteFallback\""},
      {"/decoder", R"({"type":"Strip","content":" ","start":1,"stop":0})", "every token"},
      {"/decoder",
       R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":0,"stop":1}]})",
       "at the end"},
      {"/added_tokens", "{}", "not a list"},
      {"/added_tokens", "[3]", "not an object"},
      {"/added_tokens", R"([{"id":3,"content":""}])", "added token is empty"},
      {"/added_tokens", R"([{"id":-3,"content":"x"}])", "-3"},
      {"/added_tokens", R"([{"content":"x"}])", "null"},
      {"/added_tokens", R"([{"id":3,"content":"x","special":1}])", "not true or false"},
      {"/added_tokens", R"([{"id":3,"content":"x"},{"id":4,"content":"x"}])", "occurs twice"},
      {"/added_tokens", R"([{"id":3,"content":"x"},{"id":3,"content":"y"}])", "two added tokens"},
      {"/added_tokens", added.c_str(), "has 2000 bytes"},
  };
  for (const JsonCase& fault : cases) {
    SCOPED_TRACE(std::string(fault.pointer) + " = " + std::string(fault.value).substr(0, 100));
    json document = SmallModel();
    document[json::json_pointer(fault.pointer)] = json::parse(fault.value);
    Write("tokenizer.json", document.dump());
    ExpectRefusal(fault.part);
  }
}

TEST_F(FaultsTest, AddedTokensWithoutRows) {
  json document = SmallModel();
  document["added_tokens"] = json::parse(R"([{"id":3,"content":"<x>","special":true}])");
  Write("tokenizer.json", document.dump());
  ExpectRefusal("id 3, but the model's embedding has 3 rows", ErrorCode::kTokenizer, 3);
}

TEST_F(FaultsTest, MalformedByteTokens) {
  for (const char* token : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x>", "<0x001>"}) {
    json document = SmallModel();
    document["model"]["byte_fallback"] = true;
    document["model"]["vocab"][token] = 7;
    Write("tokenizer.json", document.dump());
    ExpectRefusal("does not name a byte");
  }
}

TEST_F(FaultsTest, TokenizerConfig) {
  const JsonCase cases[] = {
      {"", "[]", "tokenizer_config.json: does not hold"},
      {"", R"({"add_bos_token":"yes"})", "not true or false"},
      {"", R"({"bos_token":3})", "neither a token nor an object"},
      {"", R"({"add_bos_token":true,"bos_token":"<none>"})", "\"<none>\""},
      {"", R"({"added_tokens_decoder":[]})", "not an object"},
      {"", R"({"added_tokens_decoder":{"-1":{"content":"x"}}})", "\"-1\""},
      {"", R"({"added_tokens_decoder":{"4":{"content":""}}})", "empty"},
      {"", R"({"added_tokens_decoder":{"4":{"content":"q"}}})", "3 rows"},
  };
  Write("vocab.json", R"({"a":0,"b":1,"ab":2})");
  Write("merges.txt", "#version: 0.2\na b\n");
  for (const JsonCase& fault : cases) {
    SCOPED_TRACE(fault.value);
    Write("tokenizer_config.json", fault.value);
    ExpectRefusal(fault.part, ErrorCode::kTokenizer, 3);
  }
}

TEST_F(FaultsTest, AcceptsBothFormatsOfMergesHolesAndBlankEnds) {
  json document = SmallModel();
  document["model"]["vocab"]["far"] = 900;
  for (const char* merges : {R"(["a b"])", R"([["a","b"]])", R"(["#version: 0.2","a b"])"}) {
    SCOPED_TRACE(merges);
    document["model"]["merges"] = json::parse(merges);
    Write("tokenizer.json", document.dump());
    EXPECT_THAT(OpenTokenizer(folder_, 1000)->Encode("ab", SpecialText::kParse),
                testing::ElementsAre(2));
    EXPECT_EQ(OpenTokenizer(folder_, 1000)->Decode(std::vector<TokenId>{2, 500, 0}), "aba");
  }
  std::filesystem::remove(folder_ / "tokenizer.json");
  Write("vocab.json", R"({"a":0,"b":1,"ab":900})");
  Write("merges.txt", "#version: 0.2\r\na b\r\n\r\n\n");
  EXPECT_THAT(OpenTokenizer(folder_, 1000)->Encode("ab", SpecialText::kParse),
              testing::ElementsAre(900));
}

TEST_F(FaultsTest, SentencePieceTruncatedAnywhere) {
  const std::string whole = Bytes(kGolden / "spm_llama" / "tokenizer.model");
  for (std::size_t size = 1; size < whole.size(); size += whole.size() / 200) {
    Write("tokenizer.model", whole.substr(0, size));
    try {
      OpenTokenizer(folder_, 1000);  // cut between two fields, what is left may be a model
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTokenizer) << error.what();
    }
  }
  Write("tokenizer.model", "");
  ExpectRefusal("is empty");
  Write("tokenizer.model", "not a protocol buffer");
  ExpectRefusal("not a SentencePiece model");
  Write("tokenizer.model", whole);
  ExpectRefusal("but the model's embedding has 699 rows", ErrorCode::kTokenizer, 699);
}

TEST_F(FaultsTest, SentencePieceWithFlippedBytes) {
  const std::string whole = Bytes(kGolden / "spm_bpe" / "tokenizer.model");
  for (std::size_t at = 0; at < whole.size(); at += whole.size() / 300) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
    Write("tokenizer.model", damaged);
    try {
      const auto tokenizer = OpenTokenizer(folder_, 1000);
      tokenizer->Decode(
          tokenizer->Encode("Once upon a \xEF\xBC\xA1 \xC2\xBD time", SpecialText::kParse));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTokenizer) << error.what();
    }
  }
}

TEST(CharsMapTest, RefusesTablesThatLeadOutside) {
  const auto table = [](std::vector<uint32_t> units, std::size_t num_units, std::string text) {
    units.resize(num_units);
    std::string bytes(4, '\0');
    const auto size = static_cast<uint32_t>(num_units * 4);
    std::memcpy(bytes.data(), &size, 4);
    bytes.append(reinterpret_cast<const char*>(units.data()), size);
    return bytes + text;
  };
  const std::string text("x\0", 2);
  EXPECT_TRUE(IsSoundCharsMap(table({0}, 256, text)));
  EXPECT_FALSE(IsSoundCharsMap(table({0}, 255, text)));         // children of the root stick out
  EXPECT_FALSE(IsSoundCharsMap(table({1u << 20}, 256, text)));  // far outside
  EXPECT_FALSE(IsSoundCharsMap(table({0}, 256, "x")));          // no NUL at the end
  EXPECT_FALSE(IsSoundCharsMap(table({0}, 256, "")));
  EXPECT_FALSE(IsSoundCharsMap(""));
  std::vector<uint32_t> circle(256);
  circle['a'] = 'a' | ('a' << 10);  // its children are at 0, 'a' among them
  EXPECT_FALSE(IsSoundCharsMap(table(circle, 256, text)));
  std::vector<uint32_t> far_value(512);
  far_value['a'] = 'a' | (256u << 10) | 1u << 8;
  far_value['a' ^ 256] = 1u << 31 | 2;
  EXPECT_FALSE(IsSoundCharsMap(table(far_value, 512, text)));
  far_value['a' ^ 256] = 1u << 31 | 1;
  EXPECT_TRUE(IsSoundCharsMap(table(far_value, 512, text)));
}

}  // namespace
}  // namespace spillway
