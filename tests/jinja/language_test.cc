#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jinja/jinja_util.h"

namespace spillway::jinja {
namespace {

using testing::HasSubstr;

TEST(JinjaLanguageTest, TrimsTheNewlineBehindABlockAndTheSpaceInFrontOfIt) {
  EXPECT_EQ(Rendered("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(Rendered("a\n  {%+ if true %}\nb{% endif %}"), "a\n  b");
  EXPECT_EQ(Rendered("{{ 1 }}\n"), "1");
  EXPECT_EQ(Rendered("{{ 1 }}\n\n"), "1\n");
}

TEST(JinjaLanguageTest, MinusTakesAllWhiteSpace) {
  EXPECT_EQ(Rendered("a \n {%- if true -%} \n b {%- endif %} c"), "ab c");
  EXPECT_EQ(Rendered("a {{- 1 -}} b"), "a1b");
  EXPECT_EQ(Rendered("a {#- x -#} b"), "ab");
}

TEST(JinjaLanguageTest, ComparisonsAreChained) {
  EXPECT_EQ(Rendered("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 2 > 1 == 1 }}"), "True False True");
}

TEST(JinjaLanguageTest, FiltersBindTighterThanOperators) {
  EXPECT_EQ(Rendered("{{ 'a' ~ 'b' | upper }}"), "aB");
  EXPECT_EQ(Rendered("{{ -1 | abs }}"), "1");
}

TEST(JinjaLanguageTest, NamesSetInALoopEndWithIt) {
  EXPECT_EQ(
      Rendered("{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{% endfor %}{{ x }}"),
      "000");
  EXPECT_EQ(Rendered("{% set n = namespace(x=0) %}{% for i in [1, 2] %}{{ n.x }}"
                     "{% set n.x = i %}{% endfor %}{{ n.x }}"),
            "012");
}

TEST(JinjaLanguageTest, MacrosSeeWhatIsSetLater) {
  EXPECT_EQ(Rendered("{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}"), "1");
}

TEST(JinjaLanguageTest, MethodsOfADictGiveWayToItsItemsInBracketsOnly) {
  EXPECT_EQ(Rendered("{{ d['items'] }}{{ d.items() | list }}", R"({"d":{"items":5}})"),
            "5[('items', 5)]");
}

TEST(JinjaLanguageTest, UndefinedPrintsNothingAndFailsWhenUsed) {
  EXPECT_EQ(Rendered("[{{ x }}{{ d.y }}]", R"({"d":{}})"), "[]");
  EXPECT_EQ(FaultOf("{{ x.y }}"), "1: 'x' is undefined");
  EXPECT_EQ(FaultOf("\n{{ d.y + 1 }}", R"({"d":{}})"), "2: 'dict object' has no attribute 'y'");
  EXPECT_EQ(FaultOf("{{ m() }}"), "1: 'm' is undefined");
}

TEST(JinjaLanguageTest, RaisesWithTheLine) {
  EXPECT_EQ(FaultOf("a\n{% for i in [1] %}\n{{ raise_exception('no ' ~ i) }}\n{% endfor %}"),
            "3: no 1");
}

TEST(JinjaLanguageTest, NothingIsChangedInPlace) {
  EXPECT_THAT(FaultOf("{{ l.append(1) }}", R"({"l":[]})"), HasSubstr("unsafe"));
  EXPECT_THAT(FaultOf("{{ d.update({}) }}", R"({"d":{}})"), HasSubstr("unsafe"));
}

TEST(JinjaLanguageTest, UnknownPartsAreRefusedByNameAndLineBeforeRendering) {
  const auto refusal = [](std::string_view source) -> std::string {
    try {
      const Template parsed(source);
    } catch (const Fault& fault) {
      return std::to_string(fault.line()) + ": " + fault.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("\n{{ x | urlize }}"), "2: the filter 'urlize' is not supported");
  EXPECT_EQ(refusal("{% if x is\nperfect %}{% endif %}"), "2: the test 'perfect' is not supported");
  EXPECT_EQ(refusal("a\nb\n{% include 'x' %}"), "3: the statement 'include' is not supported");
  EXPECT_EQ(refusal("{{ x.encode() }}"), "1: the method 'encode' is not supported");
  EXPECT_EQ(refusal("\n{{ lipsum() }}"), "2: the function 'lipsum' is not supported");
  EXPECT_EQ(refusal("{% for x in y recursive %}{% endfor %}"),
            "1: a recursive for is not supported");
  EXPECT_EQ(refusal("{% if true %}"), "1: the template ends before 'endif'");
  EXPECT_EQ(refusal("{% endif %}"), "1: 'endif' ends nothing");
  EXPECT_EQ(refusal("{{ 'x }}"), "1: a string is not closed");
  EXPECT_EQ(refusal("{{ (1 }}"), "1: unexpected '}', expected ')'");
  EXPECT_EQ(refusal("{% break %}"), "1: 'break' outside a loop");
}

}  // namespace
}  // namespace spillway::jinja
