// The template language in tables of cases. Expected texts are the output of Python's jinja2 3.1.
#include <gtest/gtest.h>

#include "base/ordered_json.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

const Json& context() {
  static const Json c = Json::parse(R"({
    "s": "Hello, Wörld! 😀", "l": [3, 1, 2], "d": {"b": 1, "a": "x"}, "n": 7, "z": null,
    "users": [{"name": "Bob", "age": 30}, {"name": "alice", "age": 25}, {"name": "Carl", "age": 30}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}]}, {"v": 3, "c": []}], "big": 12345678901234567890})");
  return c;
}

Result<std::string> render(const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  RenderOptions options;
  options.now_unix_seconds = 1752148800;  // 2025-07-10 12:00 UTC
  return parsed->render(context(), options);
}

struct LanguageCase {
  const char* source;
  const char* expected;  // null: must fail with `message`
  const char* message = "";
};

void check(std::initializer_list<LanguageCase> cases) {
  for (const LanguageCase& c : cases) {
    auto got = render(c.source);
    if (!c.expected) {
      if (got.ok()) {
        ADD_FAILURE() << c.source << " gave " << *got;
        continue;
      }
      EXPECT_NE(got.error().message.find(c.message), std::string::npos) << got.error().message;
    } else if (!got.ok()) {
      ADD_FAILURE() << c.source << ": " << got.error().message;
    } else {
      EXPECT_EQ(*got, c.expected) << c.source;
    }
  }
}

TEST(TemplateLanguage, Whitespace) {
  check({
      {"  {% if true %}  \n  a\n  {% endif %}  \nb\n", "  \n  a\n  \nb"},
      {"  {%- if true -%}  \n  a\n  {%- endif -%}  \nb\n", "ab"},
      {"x  {%+ if true +%}\n  a\n  {%+ endif %}\nb", "x  \n  a\n  b"},
      {"a\n  {# c #}\nb", "a\nb"},
      {"a\n  {{ n }}\n  b", "a\n  7\n  b"},
      {"a\n  {{- n -}}\n  b", "a7b"},
      {"a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n  b", "a\n\n  {{ x }}\n  b"},
      {"a\r\nb\r\n{% if 1 %}\r\nc{% endif %}\r\n", "a\nb\nc"},
      {"a\n\n", "a\n"},
      {"{{ '}}' }}{{ {'a': {'b': 1}}.a.b }}", "}}1"},
  });
}

TEST(TemplateLanguage, NumbersAsPython) {
  check({
      {"{{ 7/2 }} {{ 6/2 }} {{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7%-3 }} {{ -7.5%2 }}", "3.5 3.0 3 -4 2 -2 0.5"},
      {"{{ 0.1+0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 5e-324 }}",
       "0.30000000000000004 1e+16 1000000000000000.0 1e-05 0.0001 5e-324"},
      {"{{ big }} {{ big + 1 }} {{ 2**100 }}",
       "12345678901234567890 12345678901234567891 1267650600228229401496703205376"},
      {"{{ 2**-1 }} {{ 2**3**2 }} {{ -2**2 }} {{ 1_000 }} {{ 0x1F }}", "0.5 64 4 1000 31"},
      {"{{ 2.5|round }} {{ 2.345|round(2) }} {{ 42|round }} {{ 2.1|round(0, 'ceil') }}", "2.0 2.35 42 3.0"},
      {"{{ '4x'|int(9) }} {{ '5.9'|int }} {{ '0x1f'|int(0, 16) }} {{ none|int }} {{ 'x'|float }}", "9 5 31 0 0.0"},
      {"{{ 1 == 1.0 }} {{ true == 1 }} {{ 1 < 2 < 3 }} {{ [1, 2] < [1, 3] }}", "True True True True"},
      {"{{ 2**200 }}", nullptr, "too large"},
      {"{{ 1/0 }}", nullptr, "division by zero"},
      {"{{ 1 + 'a' }}", nullptr, "unsupported operand type(s) for +: 'int' and 'str'"},
      {"{{ 1 < 'a' }}", nullptr, "'<' not supported between instances of 'int' and 'str'"},
  });
}

TEST(TemplateLanguage, TextByCodePoint) {
  check({
      {"{{ s|length }} {{ s[8] }} {{ s[-1] }} {{ s[7:12] }} {{ s[::-1][:3] }}", "15 ö 😀 Wörld 😀 !"},
      {"{{ s.find('W') }} {{ s.rfind('l') }} {{ s.count('l') }} {{ s.startswith('W', 7) }}", "7 10 3 True"},
      {"{{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'a b c'.rsplit(none, 1) }}",
       "['a', 'b,c'] ['a', 'b'] ['a b', 'c']"},
      {"{{ ' a b '.split(none, 1) }} {{ 'abc'.replace('', '-') }} {{ 'aXbX'.replace('X', '', 1) }}",
       "['a', 'b '] -a-b-c- abX"},
      {"{{ 'they\\'re'.title() }} {{ 'they\\'re'|title }} {{ 'straße'.upper() }}", "They'Re They're STRASSE"},
      {"{{ 'ab'.center(5, '*') }}|{{ '-5'.zfill(4) }}|{{ 'a-b'.partition('-') }}", "**ab*|-005|('a', '-', 'b')"},
      {"{{ 'xyaxy'.strip('yx') }}{{ 'a\\tb'.expandtabs(4) }}{{ 'x'.join(['1', '2']) }}", "aa   b1x2"},
      {"{{ '%05d|%-4s|%.2f|%x|%%' % (42, 'a', 2.345, 255) }}", "00042|a   |2.35|ff|%"},
      {"{{ '{1}{0} {a:>4} {b:,} {c!r}'.format(1, 2, a='x', b=1234567, c='q') }}", "21    x 1,234,567 'q'"},
      {"{{ '\\x41\\u00e9\\n\\q' }}", "Aé\n\\q"},
      {"{{ 'a' + 1 }}", nullptr, "can only concatenate str (not \"int\") to str"},
      {"{{ 'abc'.replace('a', 'b', count=1) }}", nullptr, "takes no keyword arguments"},
      {"{{ '%d' % 'x' }}", nullptr, "%d format"},
  });
}

TEST(TemplateLanguage, PrintsAsRepr) {
  check({
      {"{{ [1.0, none, true, 'a', (1,), {}, []] }}", "[1.0, None, True, 'a', (1,), {}, []]"},
      {"{{ [\"don't\", '\\n\\\\', 'é', '\\x00', '\\u200b'] }}", "[\"don't\", '\\n\\\\', 'é', '\\x00', '\\u200b']"},
      {"{{ d }} {{ d.items() }} {{ range(1, 5, 2) }} {{ namespace(a=1) }}",
       "{'b': 1, 'a': 'x'} dict_items([('b', 1), ('a', 'x')]) range(1, 5, 2) <Namespace {'a': 1}>"},
  });
}

TEST(TemplateLanguage, Json) {
  check({
      {"{{ d|tojson }} {{ 'é</a>'|tojson }} {{ 'é😀'|tojson(ensure_ascii=true) }}",
       "{\"b\": 1, \"a\": \"x\"} \"é</a>\" \"\\u00e9\\ud83d\\ude00\""},
      {"{{ [1, {'a': []}]|tojson(indent=2) }}", "[\n  1,\n  {\n    \"a\": []\n  }\n]"},
      {"{{ {'b': 1, 'a': 2.0}|tojson(separators=(',', ':'), sort_keys=true) }}", "{\"a\":2.0,\"b\":1}"},
      {"{{ {1: none, true: 'x\\t'}|tojson }}", "{\"1\": \"x\\t\"}"},
      {"{{ nope|tojson }}", nullptr, "Undefined is not JSON serializable"},
      {"{{ l|map('string')|tojson }}", nullptr, "generator is not JSON serializable"},
  });
}

TEST(TemplateLanguage, Undefined) {
  check({
      {"[{{ nope }}{{ d.nope }}{{ l[9] }}{{ z.x }}]", "[]"},
      {"{{ nope is defined }} {{ nope|default('d') }} {{ nope == none }} {{ not nope }} {{ nope|length }}",
       "False d False True 0"},
      {"{{ 1 in nope }}{% for x in nope %}x{% else %}e{% endfor %}", "Falsee"},
      {"{{ 'a' ~ nope ~ none }}", "aNone"},
      {"{{ nope.x }}", nullptr, "'nope' is undefined"},
      {"{{ d.nope.x }}", nullptr, "'dict object' has no attribute 'nope'"},
      {"{{ 1 + nope }}", nullptr, "'nope' is undefined"},
      {"{{ nope() }}", nullptr, "'nope' is undefined"},
      {"{{ none[1:] ~ l }}{{ z[1:] }}", nullptr, "not subscriptable"},
  });
}

TEST(TemplateLanguage, Filters) {
  check({
      {"{{ l|sort }} {{ ['b', 'A']|sort }} {{ l|max }} {{ l|sum }} {{ l|join('-') }} {{ l|first }}{{ l|last }}",
       "[1, 2, 3] ['A', 'b'] 3 6 3-1-2 32"},
      {"{{ users|sort(attribute='age,name')|map(attribute='name')|list }}", "['alice', 'Bob', 'Carl']"},
      {"{{ users|selectattr('age', 'ge', 30)|map(attribute='name')|join }}", "BobCarl"},
      {"{{ users|rejectattr('age', 'eq', 30)|list|length }} {{ l|select('odd')|list }}", "1 [3, 1]"},
      {"{% for age, us in users|groupby('age') %}{{ age }}:{{ us|length }};{% endfor %}", "25:1;30:2;"},
      {"{{ d|dictsort }} {{ d|items|list }} {{ [1, 1.0, 'a', 'A']|unique|list }}",
       "[('a', 'x'), ('b', 1)] [('b', 1), ('a', 'x')] [1, 'a']"},
      {"{{ [1, 2, 3]|batch(2, 'x')|list }} {{ [1, 2, 3]|slice(2)|list }}", "[[1, 2], [3, 'x']] [[1, 2], [3]]"},
      {"{{ 'a\\n\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent(2, blank=true) }}", "  a\n\n  b|a\n  \n  b"},
      {"{{ '<a>'|e }} {{ '<'|e|e }} {{ ('<'|e) + '<' }} {{ '<p>x</p>'|striptags }}", "&lt;a&gt; &lt; &lt;&lt; x"},
      {"{{ ''|default('x', true) }} {{ 'foo bar baz'|truncate(9, leeway=0) }} {{ 'a b'|wordcount }}", "x foo... 2"},
      {"{{ users|map(attribute='zip', default='-')|join }} {{ none|map('upper')|list }}", "--- []"},
      {"{{ l|map('string')|length }}", nullptr, "object of type 'generator' has no len()"},
      {"{{ [3, 'a']|sort }}", nullptr, "not supported between"},
      {"{{ s|nothing }}", nullptr, "No filter named 'nothing'"},
      {"{{ s|items }}", nullptr, "Can only get item pairs from a mapping."},
  });
}

TEST(TemplateLanguage, Tests) {
  check({
      {"{{ 1 is odd }}{{ 4 is divisibleby 2 }}{{ true is integer }}{{ 1.0 is float }}{{ true is number }}",
       "TrueTrueFalseTrueTrue"},
      {"{{ 's' is string }}{{ l is sequence }}{{ d is mapping }}{{ 5 is iterable }}{{ z is none }}",
       "TrueTrueTrueFalseTrue"},
      {"{{ 2 is in [1, 2] }}{{ 1 is not eq 1 }}{{ 'upper' is filter }}{{ 'AB' is upper }}", "TrueFalseTrueTrue"},
      {"{{ 's' is string is string }}", nullptr, "chain"},
      {"{{ 1 is nothing }}", nullptr, "No test named 'nothing'"},
  });
}

TEST(TemplateLanguage, Loops) {
  check({
      {"{% for i in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.previtem }}|{% endfor %}",
       "12True|21False3|30False1|"},
      {"{% for i in l if i > 1 %}{{ loop.length }}:{{ i }} {% else %}none{% endfor %}", "2:3 2:2 "},
      {"{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "32"},
      {"{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{{ loop.cycle('a', 'b') }}{% endfor %}", "ab"},
      {"{% for t in tree recursive %}{{ t.v }}{{ loop.depth }}[{{ loop(t.c) }}]{% endfor %}", "11[22[]]31[]"},
      {"{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{% for c in 'hé' %}<{{ c }}>{% endfor %}", "b1ax<h><é>"},
      {"{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{% endfor %}", "TrueFalseTrue"},
      {"{% for a, b in [(1, 2, 3)] %}{% endfor %}", nullptr, "too many values to unpack (expected 2)"},
      {"{% for i in 5 %}{% endfor %}", nullptr, "'int' object is not iterable"},
      {"{% break %}", nullptr, "outside loop"},
  });
}

TEST(TemplateLanguage, Scopes) {
  check({
      {"{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}", "4231"},
      {"{% set ns = namespace(a=0) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "6"},
      {"{% if true %}{% set q = 5 %}{% endif %}{{ q }}", "5"},
      {"{% for i in l %}{{ x is defined }}{% set x = i %}{% endfor %}", "FalseFalseFalse"},
      {"{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "155"},
      {"{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "1"},
      {"{% set x | upper %} abc {% endset %}[{{ x }}]{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }}",
       "[ ABC ]123"},
      {"{% set d.x = 1 %}", nullptr, "cannot assign attribute on non-namespace object"},
      {"{% set true = 1 %}", nullptr, "can't assign to 'true'"},
  });
}

TEST(TemplateLanguage, Macros) {
  check({
      {"{% macro f(a, b=a, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, c=5) }}|{{ f(b=1) }}",
       "11x|115|1x"},
      {"{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=4) }}", "1(2,){'x': 4}"},
      {"{% macro f() %}[{{ caller(3) }}]{% endmacro %}{% call(i) f() %}<{{ i }}>{% endcall %}", "[<3>]"},
      {"{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(*[2]) }}", "210"},
      {"{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}", "5"},
      {"{% filter upper | replace('A', 'b') %}abc{% endfilter %}", "bBC"},
      {"{% set j = joiner('|') %}{% set c = cycler(1, 2) %}{{ j() }}{{ j() }}{{ c.next() }}{{ c.next() }}", "|12"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", nullptr, "takes not more than 1 argument(s)"},
      {"{% macro f(a) %}{% endmacro %}{{ f(x=2) }}", nullptr, "takes no keyword argument 'x'"},
  });
}

TEST(TemplateLanguage, Sandbox) {
  check({
      {"{{ l.append is defined }}[{{ ''.__class__ }}]", "False[]"},
      {"{{ l.append(4) }}", nullptr, "access to attribute 'append' of 'list' object is unsafe."},
      {"{{ d.update({}) }}", nullptr, "'update' of 'dict' object is unsafe"},
      {"{{ ''.__class__.__mro__ }}", nullptr, "unsafe"},
  });
  for (const char* source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}"}) {
    auto parsed = ChatTemplate::parse(source);
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().kind, ErrorKind::unsupported) << source;
  }
}

TEST(TemplateLanguage, ErrorsNameTheLine) {
  auto raised = render("a\n\n{{ raise_exception('Roles must alternate') }}");
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().kind, ErrorKind::corrupt);
  EXPECT_EQ(raised.error().message, "chat template: line 3: Roles must alternate");
  auto syntax = ChatTemplate::parse("a\n{% if %}");
  ASSERT_FALSE(syntax.ok());
  EXPECT_EQ(syntax.error().kind, ErrorKind::corrupt);
  EXPECT_NE(syntax.error().message.find("line 2"), std::string::npos) << syntax.error().message;
  for (const char* source : {"{{ 'a }}", "{% foo %}", "{% endif %}", "{% if 1 %}", "{{ (1 }}", "{{ 1] }}", "{{ 1 2 }}",
                             "{# x", "{% raw %}", "{{ f(a=1, 2) }}", "{{ ! }}", "{{", "{%", "{{ }}"}) {
    EXPECT_FALSE(ChatTemplate::parse(source).ok()) << source;
  }
}

TEST(TemplateLanguage, ClockIsInjected) {
  check({{"{{ strftime_now('%d %b %Y %H:%M %-d %j') }}", "10 Jul 2025 12:00 10 191"}});
}

TEST(TemplateLanguage, ContextHidesGlobalsAndMustBeAnObject) {
  auto parsed = ChatTemplate::parse("{{ range }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->render(Json{{"range", "mine"}}), "mine");
  EXPECT_FALSE(parsed->render(Json::array()).ok());
}

}  // namespace
}  // namespace millrace
