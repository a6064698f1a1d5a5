#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/jinja/values/print.h"
#include "src/jinja/values/python_text.h"
#include "tests/jinja/jinja_util.h"

namespace spillway::jinja {
namespace {

TEST(JinjaValuesTest, FloatsPrintAsInPython) {
  EXPECT_EQ(FloatText(1.0), "1.0");
  EXPECT_EQ(FloatText(-0.0), "-0.0");
  EXPECT_EQ(FloatText(0.1), "0.1");
  EXPECT_EQ(FloatText(1e15), "1000000000000000.0");
  EXPECT_EQ(FloatText(1e16), "1e+16");
  EXPECT_EQ(FloatText(1.5e-5), "1.5e-05");
  EXPECT_EQ(FloatText(0.0001), "0.0001");
  EXPECT_EQ(FloatText(123456.789), "123456.789");
  EXPECT_EQ(FloatText(1e300), "1e+300");
}

TEST(JinjaValuesTest, JsonKeepsTheOrderOfKeysAndLargeIntegers) {
  EXPECT_EQ(ToJson(ValueFromJson(R"({"b":1,"a":[1.0,18446744073709551616,-5,1e2],"":null})"), {}),
            R"({"b": 1, "a": [1.0, 18446744073709551616, -5, 100.0], "": null})");
}

TEST(JinjaValuesTest, KeysThatAreEqualInPythonAreOne) {
  EXPECT_EQ(Rendered("{{ {1: 'a', 1.0: 'b', true: 'c'} }}{{ {1.5: 2}[1.5] }}"), "{1: 'c'}2");
}

TEST(JinjaValuesTest, ReprChoosesItsQuotes) {
  EXPECT_EQ(Repr(Value("it's")), "\"it's\"");
  EXPECT_EQ(Repr(Value("a'\"")), R"('a\'"')");
  EXPECT_EQ(Repr(Value("\u200b\x7f\n")), R"('\u200b\x7f\n')");
}

TEST(JinjaValuesTest, CaseMapsAsInPython) {
  EXPECT_EQ(Upper("stra\u00dfe \ufb03"), "STRASSE FFI");
  EXPECT_EQ(Lower("\u03a3\u0391\u03a3 \u0130"), "\u03c3\u03b1\u03c2 i\u0307");
  EXPECT_EQ(Title("they're \u01c6"), "They'Re \u01c5");
  EXPECT_EQ(Capitalize("\u00dfA"), "Ssa");
}

TEST(JinjaValuesTest, GeneratorsAreSpent) {
  EXPECT_EQ(Rendered("{% set g = [1, 2] | select %}{{ g | list }}{{ g | list }}"), "[1, 2][]");
}

TEST(JinjaValuesTest, NumbersWithMoreDigitsThanFitAreFaults) {
  EXPECT_THROW(ValueFromJson("1" + std::string(40, '0')), Fault);
}

}  // namespace
}  // namespace spillway::jinja
