// Strict JSON: what is refused, and where it says it is.
#include "src/base/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/base/json_node.h"

namespace spillway {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

struct BadText {
  const char* name;
  std::string text;
  std::string path;
  std::string what;
};

std::string Repeated(const std::string& part, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += part;
  return text;
}

class StrictJsonFaults : public testing::TestWithParam<BadText> {};

TEST_P(StrictJsonFaults, AreNamedByTheirPlace) {
  const auto parsed = ParseStrictJson(GetParam().text, 100);
  ASSERT_TRUE(std::holds_alternative<JsonFault>(parsed));
  EXPECT_EQ(std::get<JsonFault>(parsed).path, GetParam().path);
  EXPECT_THAT(std::get<JsonFault>(parsed).what, HasSubstr(GetParam().what));
}

INSTANTIATE_TEST_SUITE_P(
    All, StrictJsonFaults,
    testing::Values(BadText{"Empty", "", "$", "not valid JSON at byte"},
                    BadText{"Cut", R"({"a":{"b":[1,2)", "$.a.b[2]", "not valid JSON"},
                    BadText{"Nan", R"({"a":[{"b":NaN}]})", "$.a[0].b", "not valid JSON at byte 12"},
                    BadText{"TrailingText", "{} x", "$", "not valid JSON"},
                    BadText{"BehindNul", std::string("{}\0 x", 5), "$", "NUL byte at byte 3"},
                    BadText{"LoneNul", std::string("{}\0", 3), "$", "NUL byte at byte 3"},
                    BadText{"Utf8", "{\"a\":\"\xff\"}", "$.a", "not valid JSON"},
                    BadText{"OutOfRange", R"({"a":[0,1e999]})", "$.a[1]", "out of range"},
                    BadText{"Twice", R"({"a":{"b":1,"c":2,"b":3}})", "$.a.b", "occurs twice"},
                    BadText{"TooMany", "[" + Repeated("0,", 99) + "0]", "$",
                            "holds more than 100 values"},
                    BadText{"ControlKey", "{\"a\\u0001\":nope}", "$.a\\x01", "not valid JSON"},
                    BadText{"DeepArrays", Repeated("[", 100'000),
                            "$" + Repeated("[0]", 38) + "[0...", "nests deeper"}),
    [](const auto& info) { return info.param.name; });

TEST(StrictJson, TakesWhatIsWithinBounds) {
  const std::string deep = Repeated("[", 64) + Repeated("]", 64);
  EXPECT_TRUE(std::holds_alternative<json>(ParseStrictJson(deep, 64)));
  EXPECT_FALSE(std::holds_alternative<json>(ParseStrictJson(deep, 63)));
  const std::string text = R"({"a":[1,-2,3.5,"x",true,null,{"b":{}}],"c":[]})";
  EXPECT_EQ(std::get<json>(ParseStrictJson(text, 100)), json::parse(text));
}

TEST(PythonJson, TakesNumbersThatAreNotFinite) {
  const std::string text =
      R"({"a":[-1.5e3,NaN,7,Infinity],"b":-Infinity,"c":"NaN \"Infinity","d":true,"e":8})";
  const json document = std::get<json>(ParsePythonJson(text, 100));
  EXPECT_TRUE(std::isnan(document["a"][1].get<double>()));
  EXPECT_EQ(document["a"][3].get<double>(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(document["b"].get<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(document["a"][0], -1500.0);
  EXPECT_EQ(document["a"][2], 7);
  EXPECT_EQ(document["c"], "NaN \"Infinity");
  EXPECT_EQ(document["e"], 8);
}

TEST(PythonJson, NullStandsForNumbersThatAreNotFinite) {
  EXPECT_EQ(WithoutNonFinite(R"({"a":[-1.5,NaN,-Infinity],"b":Infinity,"c":"NaN"})"),
            R"({"a":[-1.5,null,null],"b":null,"c":"NaN"})");
  EXPECT_EQ(WithoutNonFinite(R"({"c":"NaN \" Infinity"})"), std::nullopt);
}

TEST(PythonJson, TheLastOfEqualKeysCounts) {
  const json document = std::get<json>(ParsePythonJson(R"({"a":{"b":1},"c":2,"a":[3]})", 100));
  EXPECT_EQ(document, json::parse(R"({"a":[3],"c":2})"));
}

TEST(PythonJson, RefusesTheRestWhereItStands) {
  struct Bad {
    std::string text;
    std::size_t byte;
  };
  for (const Bad& bad :
       {Bad{"[5NaN]", 4}, Bad{"[NaN5]", 5}, Bad{"[InfinityNaN]", 11}, Bad{"[NaN,nan]", 7},
        Bad{"{NaN:1}", 3}, Bad{std::string("[NaN]\0", 6), 6}}) {
    const auto parsed = ParsePythonJson(bad.text, 100);
    ASSERT_TRUE(std::holds_alternative<JsonFault>(parsed)) << bad.text;
    EXPECT_EQ(std::get<JsonFault>(parsed).byte, bad.byte) << bad.text;
  }
  const JsonOrigin origin = {"f", ErrorCode::kPolicy};
  const json document = std::get<json>(ParsePythonJson("[NaN,Infinity]", 100));
  for (const JsonNode& item : JsonNode(document, origin).Items())
    EXPECT_THROW(item.Number(-1e300, 1e300), Error);
}

TEST(StrictJson, NodesReadWhatIsThere) {
  const JsonOrigin origin = {"f", ErrorCode::kPolicy};
  const json document = ParseJsonText(R"({"a":[1,2.5],"t":"x","b":false,"n":null})", origin);
  const JsonNode root(document, origin);
  root.ExpectKeys({"a", "t", "b", "n", "unused"});
  std::vector<double> numbers;
  for (const JsonNode& item : root.Member("a").Items()) numbers.push_back(item.Number(0, 9));
  EXPECT_THAT(numbers, ElementsAre(1, 2.5));
  EXPECT_EQ(root.Member("t").Text(), "x");
  EXPECT_FALSE(root.Member("b").Boolean());
  EXPECT_FALSE(root.Find("unused"));
  EXPECT_TRUE(root.Find("n"));
}

TEST(StrictJson, NodesRefuseByPath) {
  const JsonOrigin origin = {"f", ErrorCode::kPolicy};
  const json document = {{"a", {1, {{"b", "x"}}}}, {"big", UINT64_MAX}};
  const JsonNode root(document, origin);
  const auto refusal = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPolicy);
      return error.what();
    }
    return "taken";
  };
  const JsonNode text = (*++root.Member("a").Items().begin()).Member("b");
  EXPECT_EQ(refusal([&] { text.Number(0, 1); }),
            "f: $.a[1].b: is a string, must be a number from 0 to 1; correct the file");
  EXPECT_THAT(refusal([&] { text.Boolean(); }), HasSubstr("must be true or false"));
  EXPECT_THAT(refusal([&] { text.Items(); }), HasSubstr("must be a list"));
  EXPECT_THAT(refusal([&] { text.Find("c"); }), HasSubstr("must be an object"));
  EXPECT_THAT(refusal([&] { root.Text(); }), HasSubstr("f: $: is an object, must be a string"));
  EXPECT_THAT(refusal([&] { root.ExpectKeys({"a"}); }), HasSubstr("f: $.big: unknown key"));
  EXPECT_THAT(refusal([&] {
                root.Member("big").Integer({0, INT64_MAX});
              }),
              HasSubstr("is 18446744073709551615, must be an integer"));
  EXPECT_THAT(refusal([&] { root.Member("c"); }), HasSubstr("f: $: the key \"c\" is missing"));
}

TEST(StrictJson, AFileTooLargeIsRefused) {
  const JsonOrigin origin = {"f", ErrorCode::kPolicy};
  EXPECT_THROW(ParseJsonText(std::string((1 << 20) + 1, ' '), origin), Error);
}

TEST(StrictJson, SaysWhatIsThereInPlaceOfAFile) {
  const auto refusal = [](const char* path) -> std::string {
    try {
      ReadJsonFile(path, {path, ErrorCode::kPolicy});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPolicy);
      return error.what();
    }
    return "read";
  };
  EXPECT_EQ(refusal("/nowhere/p.json"),
            "/nowhere/p.json: cannot be read: No such file or directory; check the path");
  EXPECT_EQ(refusal("/"), "/: is a folder, not a regular file; check the path");
  for (const char* device : {"/dev/null", "/dev/zero"})
    EXPECT_THAT(refusal(device), HasSubstr("is a device, pipe or socket, not a regular file"));
}

}  // namespace
}  // namespace spillway
