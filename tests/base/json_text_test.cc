#include "src/base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace spillway {
namespace {

using Json = nlohmann::ordered_json;

TEST(JsonTextTest, MembersAreLinesAndListsOfNumbersOne) {
  const Json json = {{"name", "a\"b"},
                     {"kv_bits", {8, 4}},
                     {"heads", {{0.25, 1.0}, {0.5, nullptr}}},
                     {"empty", Json::object()},
                     {"none", Json::array()},
                     {"tiers", {{{"gpu", 1}}, {{"cpu", true}}}}};
  const std::string text = JsonFileText(json);
  EXPECT_EQ(text, R"({
  "name": "a\"b",
  "kv_bits": [8, 4],
  "heads": [
    [0.25, 1.0],
    [0.5, null]
  ],
  "empty": {},
  "none": [],
  "tiers": [
    {
      "gpu": 1
    },
    {
      "cpu": true
    }
  ]
}
)");
  EXPECT_EQ(Json::parse(text), json);
}

TEST(JsonTextTest, BytesThatAreNoTextAreReplaced) {
  const Json json = {{"na\xff", "x\xff"}};
  EXPECT_EQ(JsonFileText(json), "{\n  \"na\xEF\xBF\xBD\": \"x\xEF\xBF\xBD\"\n}\n");
}

}  // namespace
}  // namespace spillway
