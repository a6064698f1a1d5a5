"""Small templates that go through the language of chat templates, one construct each."""

CASE = {"messages": [{"role": "user", "content": "Hi \u00e9\u00df"}, {"role": "assistant", "content": "Bye"}],
        "tools": None, "documents": None,
        "variables": {"n": 7, "f": 2.5, "neg": -7, "big": 12345678901234567890, "t": True, "s": "a,b,,c", "u": "  \u00dfTraSSe \u01c5 x ",
                      "l": [3, 1, 2], "d": {"b": 1, "a": [1, "two", None, 2.0], "items": 5}, "e": [], "z": 0,
                      "people": [{"name": "bob", "age": 3, "tags": {"x": 1}}, {"name": "Al", "age": 1}, {"name": "cy", "age": 2}]}}

SNIPPETS = r"""
{{ n }} {{ f }} {{ neg }} {{ big }} {{ t }} {{ none }} {{ missing }}|
{{ 1 + 2 * 3 ** 2 - 4 / 2 // 1 % 3 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -2 ** 2 }}
{{ 1e16 }} {{ 1e15 }} {{ 123456789012345678.0 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e300 }} {{ 100.0 }} {{ 1/3 }} {{ 10/2 }}
{{ "a" ~ 1 ~ none ~ true ~ missing ~ [1, "x"] }}
{{ "ab" * 3 }} {{ [1, 2] * 2 }} {{ (1,) * 3 }} {{ 3 * "x" }}
{{ [1, 2] + [3] }} {{ (1, 2) + (3,) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ "a" < "b" }} {{ [1, 2] < [1, 3] }} {{ none == none }}
{{ 1 in l }} {{ 9 not in l }} {{ "a" in s }} {{ "b" in d }} {{ 1 in missing }} {{ "x" in "" }}
{{ not t }} {{ not missing }} {{ t and "yes" }} {{ z or "no" }} {{ e or l }} {{ t and z }}
{{ "yes" if t else "no" }} {{ "yes" if z }}| {{ 1 if z else 2 if e else 3 }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[::-1] }} {{ l[:-1] }} {{ l[5:] }} {{ l[-2:5:2] }} {{ s[2] }} {{ s[::-2] }} {{ "\u00e9\u00df!"[1] }}
{{ d.b }} {{ d["a"] }} {{ d["items"] }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get("x") }} {{ d.get("x", 3) }}
{{ d.missing }}| {{ d["missing"] }}| {{ d.missing is defined }} {{ d.b is defined }}
{{ d }} {{ [none, true, 1.0, "it's", 'say "x"', "both ' \"", "\n\t\\"] }} {{ (1,) }} {{ () }} {{ {} }} {{ {"k": (1, 2)} }}
{{ missing.attribute }}
{{ missing[0] }}
{{ missing() }}
{{ missing + 1 }}
{{ none.x }}| {{ none.x is defined }}
{{ none + 1 }}
{{ "a" + 1 }}
{{ 1 + "a" }}
{{ 1 / 0 }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ "x".__class__ }}| {{ "x".__class__ is defined }}
{{ l | length }} {{ s | length }} {{ d | count }} {{ missing | length }} {{ "\U0001f600" | length }}
{{ u | trim }}| {{ u.strip() }}| {{ u.lstrip() }}| {{ u.rstrip() }}| {{ "xxaxx".strip("x") }} {{ "abcab".lstrip("ba") }} {{ "--x--" | trim("-") }}
{{ u | upper }} {{ u | lower }} {{ u | title }} {{ u.title() }} {{ u | capitalize }} {{ u.swapcase() }} {{ "\u03a3\u0391\u03a3 \u03a3" | lower }}
{{ "hello wORLD it's o'neil-x (y)" | title }} {{ "hello wORLD it's o'neil-x (y)".title() }}
{{ s.split(",") }} {{ s.split(",", 1) }} {{ s.rsplit(",", 1) }} {{ " a  b ".split() }} {{ " a  b c ".split(none, 1) }} {{ "a b c".rsplit(none, 1) }} {{ "".split() }} {{ "".split(",") }}
{{ s.split("") }}
{{ "a\nb\r\nc\n".splitlines() }} {{ "a\nb".splitlines(true) }} {{ "a=b=c".partition("=") }} {{ "a=b=c".rpartition("=") }} {{ "a".partition("=") }}
{{ "abc".startswith("ab") }} {{ "abc".endswith(("x", "bc")) }} {{ "abc".startswith("b", 1) }} {{ "abcabc".find("c") }} {{ "abcabc".rfind("c") }} {{ "abc".find("x") }} {{ "\u00e9\u00dfx".find("x") }} {{ "aXbX".count("X") }} {{ "abc".index("b") }}
{{ "abc".index("x") }}
{{ "aaa".replace("a", "b") }} {{ "aaa".replace("a", "b", 2) }} {{ "ab".replace("", "-") }} {{ "aaa" | replace("a", "b", 1) }} {{ 123 | replace(2, 4) }}
{{ ", ".join(["a", "b"]) }} {{ l | join("-") }} {{ people | join(", ", attribute="name") }} {{ "abc" | join(".") }} {{ ["a", 1, none] | join }}
{{ ", ".join([1]) }}
{{ "ab".center(6, "*") }} {{ "ab".ljust(4) }}| {{ "ab".rjust(4) }}| {{ "-7".zfill(4) }} {{ "abc" | center(10) }}| {{ "ab".center(5) }}|
{{ "abc".isalpha() }} {{ "12".isdigit() }} {{ "a1".isalnum() }} {{ " ".isspace() }} {{ "Ab".isupper() }} {{ "AB".isupper() }} {{ "ab".islower() }} {{ "".isalpha() }} {{ "xab".removeprefix("x") }} {{ "abx".removesuffix("x") }} {{ "Ab Cd".istitle() }}
{{ "{} and {}".format(1, "x") }} {{ "{0}{1}{0}".format("a", "b") }} {{ "{x!r}".format(x="q") }} {{ "{{}}".format() }}
{{ "%s=%d %5.2f|%-4s|%04d %% %x" % ("a", 3.7, 2.345, "b", -5, 255) }} {{ "%(a)s" % {"a": 1} }} {{ "%s" | format("x") }} {{ "%r" % "q" }}
{{ "%s %s" % ("a",) }}
{{ d | tojson }} {{ "<a href='x'>&\u00e9\u2028\u007f" | tojson }} {{ "\u00e9\u007f\U0001f600" | tojson(ensure_ascii=true) }} {{ [1.0, 1e20, none, true] | tojson }} {{ (1, 2) | tojson }}
{{ d | tojson(indent=2) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=4) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(",", ":")) }} {{ d | tojson(indent="\t") }}
{{ missing | tojson }}
{{ missing | default("x") }} {{ none | default("x") }} {{ "" | default("x", true) }} {{ missing | d }}| {{ d.q | default(1) }}
{{ l | first }} {{ l | last }} {{ e | first }}| {{ "abc" | first }} {{ "abc" | last }} {{ l | sort }} {{ l | sort(reverse=true) }} {{ l | reverse | list }} {{ "abc" | reverse }} {{ l | min }} {{ l | max }} {{ l | sum }}
{{ people | map(attribute="name") | list }} {{ people | map(attribute="tags.x", default="-") | list }} {{ ["a", "b"] | map("upper") | list }} {{ people | sort(attribute="name") | map(attribute="name") | join("<") }} {{ people | sum(attribute="age") }}
{{ people | selectattr("age", "gt", 1) | map(attribute="name") | list }} {{ people | rejectattr("tags") | list | length }} {{ people | selectattr("tags", "defined") | list | length }} {{ l | select("odd") | list }} {{ l | reject("equalto", 3) | list }} {{ [0, 1, "", "x"] | select | list }}
{{ people | selectattr("name", "in", ["Al", "cy"]) | map(attribute="age") | list }}
{{ ["b", "A", "a", "B"] | unique | list }} {{ ["b", "A"] | sort }} {{ ["b", "A"] | sort(case_sensitive=true) }} {{ d | dictsort }} {{ {"B": 1, "a": 2} | dictsort }} {{ {"a": 2, "b": 1} | dictsort(by="value") }} {{ d | items | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, "x") | list }}
{{ "12" | int }} {{ "x" | int }} {{ "x" | int(5) }} {{ 3.9 | int }} {{ "3.9" | int }} {{ " -4_2 " | int }} {{ "1.5" | float }} {{ "x" | float }} {{ 5 | float }} {{ true | int }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, "ceil") }} {{ 42 | round }} {{ -3 | abs }} {{ (-3) | abs }} {{ 5 | string }} {{ none | string }}
{{ "a\nb\n\nc" | indent }}| {{ "a\nb\n" | indent(2, true) }}| {{ "a\n\nb" | indent(2, blank=true) }}| {{ "a\nb" | indent("> ") }}
{{ "<b>" | e }} {{ "<b>" | safe }} {{ ("<b>" | safe) + "<i>" }} {{ ("<" ~ n) ~ ("<b>" | safe) }} {{ ("<b>" | safe) ~ n ~ s ~ "<" }} {{ "<" | e | e }}
{{ "a very long text that goes on" | truncate(12) }} {{ "a very long text that goes on" | truncate(12, true) }} {{ "short" | truncate(4) }} {{ "a very long text" | truncate(9, false, "!", 0) }}
{{ n is number }} {{ t is number }} {{ t is integer }} {{ n is integer }} {{ f is float }} {{ s is string }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is iterable }} {{ missing is iterable }} {{ none is none }} {{ t is boolean }} {{ t is true }} {{ z is false }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is ne 7 }} {{ n is gt 3 }} {{ n is in [7] }} {{ n is not in [7] }} {{ range is callable }} {{ s is lower }} {{ none is sameas none }} {{ "x" is equalto "x" }} {{ missing is undefined }}
{{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(5, 0, -2) | list }} {{ range(3)[1] }} {{ range(3) | length }}
{{ range(200000) }}
{{ dict(a=1, b="x") }} {{ dict([["k", 2]]) }} {{ dict({"q": 1}, r=2) }}
{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set q = i %}{% endfor %}{{ ns.a }} {{ q }}|
{% set x = 1 %}{% for i in [1] %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 5 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, e2) = [3, 4] %}{{ c }}{{ e2 }}
{% set a, b = [1] %}
{% set text %}  in {{ n }} {% endset %}[{{ text }}]{% set up | upper | trim %} x {% endset %}[{{ up }}]
{% set messages.x = 1 %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle("a", "b") }}{{ loop.changed(x) }}{{ loop.depth }};{% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}{% for x in missing %}a{% else %}none{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}:{{ x }}/{{ loop.length }} {% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in "ab\u00e9" %}<{{ c }}>{% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro m(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=5) }}{{ m() }}{{ m(1, 2, 3) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}
{% macro m(x) %}{{ caller(x) }}{% endmacro %}{% call(y) m(3) %}<{{ y }}>{% endcall %}{% macro w() %}({{ caller() }}){% endmacro %}{% call w() %}in{% endcall %}
{% macro a(n) %}{{ n }}{% if n > 0 %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(5) }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = "ok" %}{{ m() }}
{% set x = "out" %}{% macro m() %}{% set x = "in" %}{{ x }}{% endmacro %}{{ m() }}{{ x }}
{{ m.name }}{% macro m() %}{% endmacro %}{{ m.name }}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a }}|
{% filter upper | replace("A", "4") %}abc {{ n }}{% endfilter %}
{% raw %}{{ x }} {% if %}{% endraw %}|{%- raw -%} y {%- endraw -%} |
{# comment #}a{#- b -#} c {#+ x +#}
{% if z %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if not z and n in [7] %}d{% endif %}
{% generation %}x{% set inside = 1 %}{% endgeneration %}{{ inside }}|
{{ raise_exception("stop here: " ~ n) }}
{{ strftime_now("%Y-%m-%d %H:%M:%S %A %B %j %b %d") }} {{ strftime_now("") }}|
{{ "a" "b" 'c' }} {{ 'it''s' }} {{ "\x41\u00e9\101\q\"" }} {{ 1_000 }} {{ 1.5e3 }} {{ "a\
b" }}
{{ [1, 2,] }} {{ {"a": 1,} }} {{ (1, 2,) }} {{ 1, 2 }} {{ l[0], }}
{{ l.0 }} {{ people[0].name }} {{ people.0.name }} {{ people[0]["tags"]["x"] }} {{ messages[-1].content[0] }} {{ l | attr("x") }}|
{{ -n | abs }} {{ -l[0] }} {{ +3 }} {{ - 3 }} {{ not n == 7 }} {{ not (n in l) }}
{{ (people | selectattr("age")) is defined }} {{ "t" if (e | selectattr("x")) else "f" }}
{{ n.__add__ }}| {{ "%s" % missing }}| {{ [missing] }} {{ missing == missing2 }} {{ missing == none }} {{ missing is none }}
{{ undefined_function("x") }}
{{ s.nothing() }}
{{ 5 in 5 }}
{{ "x" in none }}
{{ l[none] }}| {{ l["x"] }}| {{ d[l] }}| {{ s[1:"x"] }}
{{ l[:] }} {{ l[::2] }} {{ s[:3] }} {{ s[-2:] }} {{ "abc"[5] }}| {{ (1, 2, 3)[1:] }} {{ n[1:] }}|
{{ "a" if "b" is string and "c" not in "d" or false }} {{ n == 7 and f > 2 }} {{ "A" ~ "B" | lower }} {{ ("A" ~ "B") | lower }} {{ 1 + 2 | string }}
{{ 3 > 2 == true }} {{ (3 > 2) == true }} {{ 1 + 1 is number }} {{ not none is none }} {{ n is number and t is boolean }} {{ n is defined is true }}
{{ "x" is in "xyz" }} {{ n is not number }} {{ n is not none }} {{ (n, 1) is sequence }}
{{ [1, [2, [3]]] | tojson }} {{ {"a": {"b": [1, {"c": none}]}} | tojson(indent=1) }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}
{{ {1: "a", 1.0: "b", true: "c"} }} {{ {"a": 1, "a": 2} }} {{ {(1, 2): 3}[(1, 2)] }}
{{ {[1]: 2} }}
{{ "\u0130I\u0131".lower() }} {{ "\u01c4\u01c5\u01c6".title() }} {{ "\u00aa\u2170".isupper() }} {{ "\u1e9e\ufb03".upper() }} {{ "\u1fb3".title() }}
{{ loop }}|
{{ true | tojson }} {{ True }} {{ None }} {{ false }} {{ "None" }}
{{ messages | length }}{{ messages[0] }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}{{ sep_token }}|
{%- for m in messages -%} {{ m.role }} {%- endfor -%} x
   {% if true %}   
 lstrip {% endif %}   
	{% set a = 1 %}
  y {%+ if true %} plus{% endif +%}
 z
{{ n }}  
 {{- n -}}  
 {{ n }}
{%  if n==7  %}seven{%endif%}{{n}}{{-n-}}{{ - n }}{{ 1+1 }}{{n-1}}{{{"a":1}}}{{ {"a":{"b":2}}["a"]["b"] }}
{{ "}}" }}{{ '%}' }}{% set q = "%}" %}{{ q }}{{ "{{" }}
{{ x
{% if %}
{% endif %}
{% for %}
{{ ) }}
{{ "open }}
{% unknown %}
{{ 1 | unknown_filter }}
{{ 1 is unknown_test }}
{% set x = %}
{{ a b }}
{% macro %}
{{ {1, 2} }}
{{ 007 }}
{{ a.b.c }}
{{ 'a' | upper() | lower }}{{ ("a", "b") | join }}{{ (l | list)[0] }}{{ l | list | first }}
{% print n %}{% print n, 2 %}
{% set ns = namespace({"q": 1}, r=2) %}{{ ns.q }}{{ ns.r }}{{ ns["q"] }}{{ ns.zz }}|{{ ns }}
{% set ns = namespace(_x=1) %}
{% set ns = namespace() %}{% set ns._x = 1 %}
{{ "a" | default(undefined_thing) }}{{ undefined_thing | default(undefined_thing) }}|
{{ [1, 2, 3] | random_thing }}
{{ ["x"] * 2 | length }}{{ (["x"] * 2) | length }}{{ 2 * 3 | string ~ "q" }}
{{ "a=%s" % n }}{{ "a=%s,%s" % (n, f) }}{{ "%5s|%-5s|%.2s" % ("ab", "ab", "abc") }}{{ "%+d % d" % (1, 2) }}{{ "%i" % 3.99 }}{{ "%f" % 1 }}
{{ "%d" % "x" }}
{{ d.a[1] }}{{ d["a"][-1] }}{{ d.a | length }}{{ d.get("a")[0] }}{{ d.get("a") | last }}{{ d.copy() }}{{ l.index(2) }}{{ l.count(1) }}{{ l.copy() }}
{{ l.index(99) }}
{{ "\t" | tojson }}{{ "\\" | tojson }}{{ "\u0001\b\f" | tojson }}{{ 1.0 | tojson }}{{ 12345678901234567890 | tojson if false else big | tojson }}
{{ f * 2 }}{{ n * f }}{{ t + t }}{{ 5 - 2.0 }}{{ 2 ** 10 }}{{ 9 / 3 }}{{ 0.1 + 0.2 }}{{ 1e300 * 1e10 }}{{ -0.0 }}
""".strip("\n").split("\n")

# Constructs of several lines.
SNIPPETS = [line for line in SNIPPETS if line] + ["""
{% for m in messages %}
  {% if loop.first %}
    first {{ m.role }}
  {% else %}
    {{- m.role }}
  {% endif %}
{% endfor %}
   {# a comment #}   
  end {% if true -%}

    x
{%- endif %}  
tail

""", "a\n{% if true %}\nb\n{% endif %}\nc\n\n", "  {% set x = 1 %}\n  {{ x }}\n\t{#- c -#}\n  y", "\r\na\r\n{% if true %}\r\nb{% endif %}\r\n",
"{% raw -%}\n  {{ a }}\n  {%- endraw %}\nb", "x{% raw %}\n  y{% endraw %}\n z", "{{ '''a''' }}", "\n\n{{ n }}\n\n", "{% if true %}\n\n\nx{% endif %}", "{%- if true %} a {% endif -%} b", "{{ n -}}\n\n  x", "{{ n +}}",
"a {%- if true +%}\nb{% endif %}", "{% set x %}\n  a\n{% endset %}[{{ x }}]", "{{ {'a': 1,\n 'b': [2,\n3]} }}", "{% macro f(x) %}\n  {{ x }}\n{% endmacro %}\n{{ f(1) }}|{{ f(2) -}}\n |"]
