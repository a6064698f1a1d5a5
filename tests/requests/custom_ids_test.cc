#include "src/requests/custom_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "spillway/error.h"
#include "src/requests/passed_keys.h"
#include "src/requests/scan.h"
#include "tests/requests/fake_tokenizer.h"
#include "tests/requests/reader_options.h"
#include "tests/temporary_folder.h"

namespace spillway {
namespace {

using testing::HasSubstr;

TEST(CustomIds, FindsTheSecondOfTwo) {
  CustomIds ids;
  EXPECT_TRUE(ids.Add(1, "a"));
  EXPECT_TRUE(ids.Add(2, "b"));
  EXPECT_FALSE(ids.Add(3, "a"));
}

TEST(CustomIds, ALineWithoutOneHasItsNumber) {
  CustomIds ids;
  EXPECT_TRUE(ids.Add(1, ""));
  EXPECT_TRUE(ids.Add(2, "2"));  // its own number
  EXPECT_TRUE(ids.Add(3, "9"));
  EXPECT_TRUE(ids.Add(4, "04"));
  EXPECT_FALSE(ids.Add(5, "1"));
  EXPECT_FALSE(ids.Add(6, "2"));
  EXPECT_TRUE(ids.Add(7, "4"));  // line 4 has another
  EXPECT_FALSE(ids.Add(9, ""));
  EXPECT_TRUE(ids.Add(10, "99999999999999999999"));
}

TEST(CustomIds, KeepsManyApart) {
  CustomIds ids;
  for (int64_t line = 1; line <= 200'000; ++line)
    ASSERT_TRUE(ids.Add(line, "request-" + std::to_string(line)));
  for (int64_t line = 1; line <= 200'000; line += 1000)
    ASSERT_FALSE(ids.Add(200'000 + line, "request-" + std::to_string(line)));
}

ReaderOptions Options() { return OptionsFor(100); }

// The refusal, or how many requests there are.
std::string Scanned(const std::string& text, const ReaderOptions& options = Options(),
                    const std::string& name = "in.jsonl") {
  const TemporaryFolder folder;
  try {
    return std::to_string(
        ScanInput(folder.Write(name, text), FakeTokenizer(), options, 2).num_requests);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    return error.what();
  }
}

TEST(Duplicates, AreRefusedWithTheirFirstTwoLines) {
  const std::string a = R"({"custom_id":"a","prompt":"x"})"
                        "\n";
  const std::string none = R"({"prompt":"x"})"
                           "\n";
  EXPECT_THAT(Scanned(a + none + "\n" + a + a),
              HasSubstr("custom_id \"a\" is that of lines 1 and 4; give each its own, or "
                        "--allow-duplicate-ids"));
  EXPECT_THAT(Scanned(none + R"({"custom_id":"1","prompt":"x"})"),
              HasSubstr("custom_id \"1\" is that of lines 1 and 2 (a line without one has its"));
  EXPECT_THAT(Scanned(R"({"custom_id":"2","prompt":"x"})"
                      "\n" +
                      none),
              HasSubstr("custom_id \"2\" is that of lines 1 and 2"));
  // Answers of bad lines have ids, too.
  EXPECT_THAT(Scanned(a + R"({"custom_id":"a","prompt":5})"), HasSubstr("lines 1 and 2"));
  const std::string with_nan = R"({"custom_id":"a","prompt":"x","score":NaN})";
  EXPECT_THAT(Scanned(a + with_nan), HasSubstr("lines 1 and 2"));
  ReaderOptions allowing = Options();
  allowing.allow_duplicate_ids = true;
  EXPECT_EQ(Scanned(a + a, allowing), "2");
  EXPECT_EQ(Scanned("1\n1\n", Options(), "in.txt"), "2");
  EXPECT_EQ(Scanned("\n" + none + R"({"custom_id":"1","prompt":"x"})"), "2");  // line 1 is blank
}

TEST(PassedKeys, AreCountedWithTheirFirstLines) {
  PassedKeys passed;
  passed.Add(1, {});
  passed.Add(2, {"a", "b"});
  passed.Add(5, {"b", ""});
  ASSERT_EQ(passed.keys().size(), 3u);
  EXPECT_EQ(passed.keys()[1].key, "b");
  EXPECT_EQ(passed.keys()[1].num_lines, 2);
  EXPECT_EQ(passed.keys()[1].first_line, 2);
  EXPECT_EQ(passed.keys()[2].first_line, 5);
  for (int64_t line = 6; line < 1006; ++line) passed.Add(line, {"key" + std::to_string(line)});
  ASSERT_EQ(passed.keys().size(), 33u);
  EXPECT_EQ(passed.keys().back().key, "");
  EXPECT_EQ(passed.keys().back().num_lines, 1000 - 29);
}

}  // namespace
}  // namespace spillway
