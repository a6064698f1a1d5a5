// Templates that would take much time or memory: each is refused with its line within the seconds
// and bytes that a rendering may take, however it goes about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <ctime>
#include <fstream>
#include <ostream>
#include <string>

#include "tests/jinja/jinja_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SPILLWAY_TEST_SANITIZED 1
#else
#define SPILLWAY_TEST_SANITIZED 0
#endif

namespace spillway::jinja {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Hostile {
  const char* name;
  // The second line of the template, in a loop that does not end. `n` is a namespace with x = 8
  // letters, l = a list of one, d = a dict, t = a text of 1 MB; i counts.
  const char* step;

  friend void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }
};

constexpr Hostile kHostile[] = {
    {"text_doubles", "{% set n.x = n.x + n.x %}"},
    {"text_doubles_by_tilde", "{% set n.x = n.x ~ n.x %}"},
    {"text_times", "{% set n.x = n.x * 1000000 %}"},
    {"text_doubles_kept", "{% set n.x = n.x + n.x %}{% set n.l = n.l + [n.x] %}"},
    {"text_copies_kept", "{% set n.l = n.l + [n.t + 'a'] %}"},
    {"text_copies_dropped", "{% set y = n.t + 'a' %}"},
    {"text_in_list", "{% set n.l = [n.l, n.t ~ i, n.t ~ i] if i % 90 else n.l[1:] %}"},
    {"list_doubles", "{% set n.l = n.l + n.l %}"},
    {"list_times", "{% set n.l = n.l * 1000000 %}"},
    {"tuple_times", "{% set n.l = (1, 2, 3) * (i * 100000) %}"},
    {"list_of_lists",
     "{% set n.l = [n.l, n.l] if i < 90 else n.l %}{% set n.x = [n.x, n.x] if i < 90 else n.x %}"
     "{{ n.l == n.x }}"},
    {"list_printed", "{% set n.l = [n.l, n.l] if i < 20 else n.l %}{% set y = n.l | string %}"},
    {"list_as_json", "{% set n.l = [n.l, n.l] if i < 20 else n.l %}{% set y = n.l | tojson %}"},
    {"json_indent", "{% set y = [[[[1]]]] | tojson(indent=n.t) %}{{ y | length }}"},
    {"json_separators", "{% set y = range(99) | list | tojson(separators=[n.t, n.t]) %}"},
    {"small_texts_kept", "{% set n.l = n.l + [i ~ 'abc'] %}"},
    {"undefined_kept", "{% set n.l = n.l + [nothing] * 9 + [none_of_this, neither_that] %}"},
    {"methods_kept", "{% set n.l = n.l + [n.t.strip, n.t.upper, n.t.lower] %}"},
    {"dicts_kept", "{% set n.d = dict(n.d, **{'k' ~ i: i}) %}"},
    {"dicts_of_long_keys", "{% set n.d = {n.t ~ i: n.d} if i % 90 else {} %}"},
    {"tuple_keys", "{% set n.l = (n.l, n.l) if i % 90 else (1, 2) %}{% set y = {n.l: 1} %}"},
    {"namespaces_kept", "{% set n.x = namespace(a=n.x, b=1, c=2) %}"},
    {"macros_kept", "{% macro f(a, b=1) %}{{ a }}{% endmacro %}{% set n.x = f %}"},
    {"call_blocks", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}a{% endcall %}"},
    {"text_items", "{% for c in n.t %}{% endfor %}"},
    {"text_as_list", "{% set n.l = n.t | list %}"},
    {"ranges", "{% set y = range(100000) %}"},
    {"ranges_kept", "{% set n.l = [n.l, range(100000)] if i % 90 else range(100000) | list %}"},
    {"join", "{% set y = range(10000) | join(n.t) %}"},
    {"join_method", "{% set y = n.t.join(['a'] * 1000) %}"},
    {"replace", "{% set y = n.t.replace('a', n.t) %}"},
    {"replace_filter", "{% set y = n.t | replace('', n.x * 10) %}"},
    {"replace_nothing", "{% set y = n.t | replace('b', '') %}"},
    {"split", "{% set y = n.t.split('a') %}"},
    {"split_right", "{% set y = n.t.rsplit('a') %}"},
    {"split_right_once", "{% set y = n.t.rsplit('aaaaab', 1) %}"},
    {"split_lines", "{% set y = (n.t | replace('a', '\\n')).splitlines() %}"},
    {"split_kept", "{% set n.l = n.l + (n.t ~ ' b').split(' ') %}"},
    {"partition", "{% set y = n.t.partition('b') %}"},
    {"search_long", "{% set y = (n.t[:500000] ~ 'b') in n.t %}"},
    {"search_long_right", "{% set y = n.t.rfind('b' ~ n.t[:500000]) %}"},
    {"search_medium", "{% set y = ('a' * 200 ~ 'b' ~ 'a' * 55) in n.t %}"},
    {"count", "{% set y = n.t.count('aa') %}"},
    {"find", "{% set y = n.t.find('b') %}"},
    {"strip_letters", "{% set y = n.t.strip('b' * 1000000 ~ 'a') %}"},
    {"strip_filter", "{% set y = n.t | trim('a') %}"},
    {"strip_spaces", "{% set y = (' ' * 1000000).strip() %}"},
    {"upper", "{% set y = n.t | upper %}"},
    {"title", "{% set y = n.t.title() %}"},
    {"title_filter", "{% set y = n.t | title %}"},
    {"lower_sigma", "{% set y = ('\u03a3\\'' * 100000).lower() %}"},
    {"is_upper", "{% set y = n.t is upper %}"},
    {"is_printable", "{% set y = n.t.isprintable() %}"},
    {"escape", "{% set y = ('<' * 1000000) | e %}"},
    {"markup", "{% set y = (n.t | safe) + n.t %}"},
    {"indent", "{% set y = ('\\n' * 1000) | indent(n.t, blank=true) %}"},
    {"center", "{% set y = n.t.center(60000000) %}"},
    {"ljust", "{% set y = 'a'.ljust(5000000, 'b') %}"},
    {"percent", "{% set y = '%10000s' * 100 % ((1,) * 100) %}"},
    {"percent_text", "{% set y = '%.5s' * 100 % ((n.t,) * 100) %}"},
    {"percent_real", "{% set y = '%.9999f' * 100 % ((0.1,) * 100) %}"},
    {"fields", "{% set y = ('{0}' * 1000).format(n.t) %}"},
    {"named_fields",
     "{% set n.d = dict(n.d, **{'k' ~ i: i}) %}{% set y = ('{k0}' * 1000).format(**n.d) %}"},
    {"sort", "{% set y = ((range(1000) | list) * 90) | sort %}"},
    {"sort_long_texts", "{% set y = ([n.t ~ 'a', n.t ~ 'b', n.t ~ 'c'] * 100) | sort %}"},
    {"sort_lists",
     "{% set n.l = [n.l, n.l] if i < 90 else n.l %}{% set n.x = [n.x, n.x] if i < 90 else n.x %}"
     "{% set y = [[[n.x], 1], [[n.x], 0]] | sort %}"},
    {"unique", "{% set y = ([n.t ~ 'a', n.t ~ 'b'] * 100) | unique | list %}"},
    {"map_path", "{% set y = range(1000) | map(attribute=('a.' * 100000), default={}) | list %}"},
    {"map_filter", "{% set y = ([n.t] * 100) | map('upper') | list %}"},
    {"select", "{% set y = ([n.t] * 1000) | select('equalto', n.t ~ '') | list %}"},
    {"sum_of_lists", "{% set y = ([[1] * 1000] * 1000) | sum(start=[]) %}"},
    {"batch", "{% set y = [1] | batch(1000000, 'a') | list %}"},
    {"reverse_text", "{% set y = n.t | reverse %}"},
    {"slice_text", "{% set y = n.t[1:] %}"},
    {"slice_text_steps", "{% set y = n.t[::-1] %}"},
    {"slice_list", "{% set y = ([1] * 100000)[1:] %}"},
    {"index_text", "{% set y = n.t[-1] %}"},
    {"item_of_list", "{% set y = ([1] * 100000 + [2]).index(2) %}"},
    {"in_list", "{% set y = 2 in [1] * 100000 %}"},
    {"compare_texts", "{% set y = (n.t ~ 'a') == (n.t ~ 'b') %}"},
    {"compare_chain", "{{ n.t < n.t < n.t < n.t < n.t }}"},
    {"length", "{{ n.t | length }}"},
    {"number_of_text", "{{ ('1' * 1000000) | int }}{{ ('1' * 1000000) | float }}"},
    {"output", "{{ n.t }}"},
    {"captured", "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}"},
    {"filter_block", "{% filter upper %}{{ n.t }}{% endfilter %}"},
    {"loop_changed", "{% for a in [1, 2] %}{{ loop.changed(n.t) }}{% endfor %}"},
    {"arguments",
     "{% set n.d = dict(n.d, **{'k' ~ i: i}) %}{% macro f() %}{{ kwargs.k0 }}{% endmacro %}"
     "{{ f(**n.d) }}"},
    {"varargs", "{% macro f() %}{{ varargs[0] }}{% endmacro %}{{ f(*([1] * 100000)) }}"},
    {"time", "{{ strftime_now('%c' * 200) }}"},
    {"names",
     "{% for a in [1] * 50000 %}{% for b in [1] * 50000 %}{{ q }}{% endfor %}{% endfor %}"},
    {"raises_at_length",
     "{% set n.x = n.x + n.x %}{% if i > 30 %}{{ raise_exception(n.x) }}{% endif %}"},
};

double CpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A line of /proc/self/status in MiB: what the process holds, or has held at most.
double StatusMib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  return 0;
}

void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

class HostileTest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileTest, IsRefusedSoonAndSmall) {
  const std::string source =
      "{% set n = namespace(x='aaaaaaaa', l=[1], d={}, t='a' * 1000000) %}\n"
      "{% for o in range(100000) %}{% for j in range(1000) %}{% set i = o * 1000 + j %}" +
      std::string(GetParam().step) + "{% endfor %}{% endfor %}";
  malloc_trim(0);
  const double held = StatusMib("VmRSS");
  ResetPeak();
  const double begin = CpuSeconds();
  const std::string fault = FaultOf(source);
  const double seconds = CpuSeconds() - begin;
  const double grown = StatusMib("VmHWM") - held;
  EXPECT_THAT(fault, AllOf(StartsWith("2: "), AnyOf(HasSubstr("holds more than 64 MiB"),
                                                    HasSubstr("takes too long"))));
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds));
  RecordProperty("mebibytes", static_cast<int>(grown));
  if (SPILLWAY_TEST_SANITIZED) return;
  EXPECT_LT(seconds, 2.0);
  EXPECT_LT(grown, 100.0);
}

INSTANTIATE_TEST_SUITE_P(Steps, HostileTest, testing::ValuesIn(kHostile),
                         [](const auto& info) { return std::string(info.param.name); });

class LongSourceTest : public testing::TestWithParam<const char*> {};

// A template as long as one may be, of one piece again and again.
TEST_P(LongSourceTest, IsReadSoonAndSmall) {
  std::string source;
  while (source.size() + std::string_view(GetParam()).size() < (256 << 10)) source += GetParam();
  malloc_trim(0);
  const double held = StatusMib("VmRSS");
  ResetPeak();
  const double begin = CpuSeconds();
  FaultOf(source);
  const double seconds = CpuSeconds() - begin;
  const double grown = StatusMib("VmHWM") - held;
  RecordProperty("milliseconds", static_cast<int>(1000 * seconds));
  RecordProperty("mebibytes", static_cast<int>(grown));
  if (SPILLWAY_TEST_SANITIZED) return;
  EXPECT_LT(seconds, 2.0);
  EXPECT_LT(grown, 100.0);
}

INSTANTIATE_TEST_SUITE_P(Pieces, LongSourceTest,
                         testing::Values("{{a}}", "{%if a%}{%endif%}", "{{[1,1,1,1,1,1,1,1,1]}}",
                                         "{{a(b=c)}}", "{{{1:1}}}", "{%macro a(b)%}{%endmacro%}",
                                         "{%set a=b%}", "{{a|d}}", "{{''}}", "{{a is b}}",
                                         "{{a if a}}", "{{[[[[[[[[]]]]]]]]}}", "{#a#}", "{"));

}  // namespace
}  // namespace spillway::jinja
