// Templates that mean harm: each ends in a fault, soon, and the process goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/jinja/jinja_util.h"

namespace spillway::jinja {
namespace {

using testing::HasSubstr;

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaLimitsTest, LoopsInLoops) {
  EXPECT_THAT(FaultOf("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
                      "{% endfor %}"),
              HasSubstr("takes too long"));
}

TEST(JinjaLimitsTest, TextsThatDouble) {
  EXPECT_THAT(FaultOf("{% set n = namespace(x='aaaaaaaa') %}{% for i in range(99) %}"
                      "{% set n.x = n.x ~ n.x %}{% endfor %}"),
              HasSubstr("holds more than 64 MiB"));
  EXPECT_THAT(FaultOf("{{ 'a' * 99999999999 }}"), HasSubstr("holds more than 64 MiB"));
  EXPECT_THAT(FaultOf("{{ 'a'.center(9999999999) }}"), HasSubstr("holds more than 64 MiB"));
  EXPECT_THAT(FaultOf("{% set x = 'a' * 60000 %}{{ x.replace('a', x) }}"),
              HasSubstr("holds more than 64 MiB"));
  EXPECT_THAT(FaultOf("{{ '%99999999d' % 1 }}"), HasSubstr("too wide"));
}

TEST(JinjaLimitsTest, ListsThatDouble) {
  EXPECT_THAT(FaultOf("{{ [1] * 99999999999 }}"), HasSubstr("holds more than 64 MiB"));
  EXPECT_THAT(FaultOf("{% set n = namespace(x=[1]) %}{% for i in range(99) %}"
                      "{% set n.x = n.x + n.x %}{% endfor %}"),
              HasSubstr("holds more than 64 MiB"));
}

TEST(JinjaLimitsTest, ListsOfOneListTwicePrintedOrCompared) {
  const std::string nested =
      "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
      "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}";
  EXPECT_THAT(FaultOf(nested + "{{ n.x }}"), HasSubstr("takes too long"));
  EXPECT_THAT(FaultOf(nested + "{{ n.x | tojson }}"), HasSubstr("takes too long"));
  EXPECT_THAT(FaultOf(nested + "{{ n.x == n.y }}"), HasSubstr("takes too long"));
}

TEST(JinjaLimitsTest, DepthOfValues) {
  EXPECT_THAT(FaultOf("{% set n = namespace(x=[]) %}{% for i in range(100000) %}"
                      "{% set n.x = [n.x] %}{% endfor %}"),
              HasSubstr("nests deeper than 100"));
  EXPECT_THAT(FaultOf("{% set n = namespace() %}{% set n.x = [n] %}{{ n }}"),
              HasSubstr("holds itself"));
}

TEST(JinjaLimitsTest, ChainsOfNamespacesAndMacrosAreFreed) {
  EXPECT_EQ(Rendered("{% set n = namespace(x=none) %}{% for i in range(50000) %}"
                     "{% set n.x = namespace(x=n.x) %}{% endfor %}a"),
            "a");
  EXPECT_EQ(Rendered("{% set n = namespace(f=none) %}{% for i in range(50000) %}"
                     "{% set g = n.f %}{% macro f() %}{{ g }}{% endmacro %}{% set n.f = f %}"
                     "{% endfor %}a"),
            "a");
}

TEST(JinjaLimitsTest, MacrosThatCallThemselves) {
  EXPECT_THAT(FaultOf("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("nests deeper than"));
}

TEST(JinjaLimitsTest, ExpressionsInExpressions) {
  EXPECT_THAT(FaultOf("{{ " + Repeated("(", 1000) + "1" + Repeated(")", 1000) + " }}"),
              HasSubstr("nest"));
  EXPECT_THAT(FaultOf("{{ " + Repeated("not ", 1000) + "1 }}"), HasSubstr("nest"));
  EXPECT_THAT(FaultOf("{{ " + Repeated("-", 1000) + "1 }}"), HasSubstr("nest"));
  EXPECT_THAT(FaultOf("{{ 1" + Repeated(" + 1", 1500) + " }}"), HasSubstr("nests deeper"));
  EXPECT_THAT(FaultOf("{{ 1" + Repeated(" + 1", 3000) + " }}"), HasSubstr("more than 4000 tokens"));
  EXPECT_THAT(FaultOf("{{ x" + Repeated(".x", 1000) + " }}"), HasSubstr("nest"));
  EXPECT_THAT(FaultOf("{{ 1" + Repeated(" | string", 1000) + " }}"), HasSubstr("nest"));
}

TEST(JinjaLimitsTest, StatementsInStatements) {
  EXPECT_THAT(FaultOf(Repeated("{% if true %}", 1000) + Repeated("{% endif %}", 1000)),
              HasSubstr("statements nest deeper"));
  EXPECT_THAT(FaultOf("{% if 0 %}" + Repeated("{% elif 0 %}", 5000) + "{% endif %}"),
              HasSubstr("too many elif"));
}

TEST(JinjaLimitsTest, OutputAndSource) {
  const RenderLimits limits = {.bytes = 4000};
  EXPECT_THAT(FaultOf("{% for i in range(99) %}0123456789ab{% endfor %}", "{}", limits),
              HasSubstr("holds more than"));
  EXPECT_THAT(FaultOf(Repeated("0123456789abcdef", 70000)), HasSubstr("at most 262144"));
}

TEST(JinjaLimitsTest, NumbersOutOfRange) {
  EXPECT_THAT(FaultOf("{{ 10 ** 50 }}"), HasSubstr("127 bits"));
  EXPECT_THAT(FaultOf("{{ 2 ** 9999999999 }}"), HasSubstr("127 bits"));
  EXPECT_THAT(FaultOf("{{ 99999999999999999999999999999999999999 }}"), HasSubstr("out of range"));
  EXPECT_THAT(FaultOf("{{ 1e400 }}"), HasSubstr("out of range"));
  EXPECT_EQ(Rendered("{{ 9223372036854775807 * 9223372036854775807 // 7 }}").size(), 38U);
}

TEST(JinjaLimitsTest, SearchesInLongTexts) {
  EXPECT_THAT(FaultOf("{% set x = 'a' * 30000000 %}{% for i in range(100000) %}"
                      "{{ 'b' in x }}{% endfor %}"),
              HasSubstr("takes too long"));
}

TEST(JinjaLimitsTest, AnyBytesOfATemplateEndInTextOrFault) {
  const std::string source =
      "{% macro m(a, b=[1, {'c': 2}]) %}{{ a|upper ~ b[0:1] }}{% endmacro %}{% for x in y if x is "
      "not none %}{{ m(loop.index, *x, **z) if x else 'q' }}{%- else -%}{# c #}{% endfor %}";
  for (std::size_t end = 0; end < source.size(); ++end) {
    FaultOf(source.substr(0, end));
    FaultOf(source.substr(end));
    for (const char c : {'{', '}', '%', '(', ']', '|', '\'', '\\', '0', '.', ' ', '\n'}) {
      std::string changed = source;
      changed[end] = c;
      FaultOf(changed, R"({"y":[[1],[2]],"z":{}})");
    }
  }
}

}  // namespace
}  // namespace spillway::jinja
