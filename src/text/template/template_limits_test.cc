// Hostile templates: each must end soon with an error.
#include <gtest/gtest.h>

#include <thread>

#include "base/ordered_json.h"
#include "text/template/chat_template.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string repeat(const std::string& s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

Result<std::string> render_limited(const std::string& source, const Json& context = Json::object()) {
  TemplateLimits limits;
  limits.steps = 300'000;
  limits.output_bytes = 1 << 20;
  limits.memory_bytes = 32 << 20;
  auto parsed = ChatTemplate::parse(source, limits);
  if (!parsed.ok()) return parsed.error();
  return parsed->render(context);
}

TEST(TemplateLimits, WorkAndSizeAreBounded) {
  const std::string grow = "{% set n = namespace(x=[1], y=[1], s='aaaaaaaa') %}{% for i in range(100) %}";
  for (const std::string& source : {
           std::string("{{ 'a' * 10**9 }}"),
           std::string("{{ [1] * 10**12 }}"),
           std::string("{{ range(10**12) }}"),
           std::string("{% for a in range(10**5) %}{% for b in range(10**5) %}{% endfor %}{% endfor %}"),
           std::string("{% for i in range(1000) %}{{ 'a' * 10000 }}{% endfor %}"),
           std::string("{{ '%1000000000d' % 1 }}"),
           std::string("{{ '%*d' % (10**30, 1) }}"),
           std::string("{{ '{:1000000000}'.format(1) }}"),
           std::string("{{ '%.1000000000f' % 1 }}"),
           std::string("{{ 'a'.center(10**15) }}{{ 'a'.zfill(10**15) }}"),
           std::string("{{ 'a'|indent(10**15) }}"),
           std::string("{{ ('a' * 100000).replace('', 'b' * 100000) }}"),
           std::string("{{ [1]|batch(10**12, 0)|list }}"),
           std::string("{{ range(100000)|unique|list }}"),
           std::string("{{ 1|tojson(indent=10**10) }}"),
           std::string("{{ strftime_now('%c' * 5000) }}"),
           grow + "{% set n.s = n.s + n.s %}{% endfor %}",
           grow + "{% set n.x = n.x + n.x %}{% endfor %}",
           grow + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
           grow + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson }}",
           grow + "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
       }) {
    auto got = render_limited(source);
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_EQ(got.error().kind, ErrorKind::resource) << source << ": " << got.error().message;
  }
}

TEST(TemplateLimits, RecursionIsBounded) {
  for (const std::string& source : {
           std::string("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
           std::string("{% macro f(x) %}{% for i in [1] %}{% if 1 %}{{ [f(x)]|join }}{% endif %}{% endfor %}"
                       "{% endmacro %}{{ f(1) }}"),
           std::string("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"),
           std::string("{% set n = namespace() %}{% set n.x = [n] %}{{ n }}"),
           std::string("{% set n = namespace(x=1) %}{% set n.x = n %}{% for i in range(190) %}{% set n.x = [n.x] %}"
                       "{% endfor %}{{ n }}"),
           std::string("{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}"),
       }) {
    auto got = render_limited(source);
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_EQ(got.error().kind, ErrorKind::resource) << source << ": " << got.error().message;
  }
}

TEST(TemplateLimits, NestingOfTheSourceIsBounded) {
  constexpr int kMany = 50'000;
  for (const std::string& source : {
           "{{ " + repeat("(", kMany) + "1" + repeat(")", kMany) + " }}",
           "{{ " + repeat("[", kMany) + repeat("]", kMany) + " }}",
           "{{ " + repeat("{1:", kMany) + "1" + repeat("}", kMany) + " }}",
           "{{ " + repeat("not ", kMany) + "1 }}",
           "{{ " + repeat("-", kMany) + "1 }}",
           "{{ 1" + repeat("+1", kMany) + " }}",
           "{{ 1" + repeat(" and 1", kMany) + " }}",
           "{{ 1" + repeat("|string", kMany) + " }}",
           "{{ a" + repeat(".a", kMany) + " }}",
           "{{ a" + repeat("()", kMany) + " }}",
           "{{ " + repeat("1 if 1 else ", kMany) + "1 }}",
           repeat("{% if 1 %}", kMany) + repeat("{% endif %}", kMany),
           repeat("{% for a in b %}", kMany) + repeat("{% endfor %}", kMany),
           "{% set " + repeat("(", kMany) + "a" + repeat(")", kMany) + " = 1 %}",
       }) {
    auto got = render_limited(source);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().kind, ErrorKind::resource) << got.error().message;
  }
}

TEST(TemplateLimits, ContextNestingIsBounded) {
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_FALSE(render_limited("{{ x }}", Json{{"x", deep}}).ok());
  EXPECT_EQ(*render_limited("{{ y }}", Json{{"x", deep}, {"y", 1}}), "1");  // unused variables cost nothing
}

TEST(TemplateLimits, ArithmeticIsDefinedAtTheEdges) {
  const std::string edges = "{% set m = 2**126 - 1 + 2**126 %}{% set l = -m - 1 %}";
  EXPECT_EQ(*render_limited(edges + "{{ l }}"), "-170141183460469231731687303715884105728");
  EXPECT_EQ(*render_limited(edges + "{{ l % -1 }}{{ '%x' % l }}"), "0-80000000000000000000000000000000");
  EXPECT_EQ(*render_limited("{{ 'abc'[::10**30] }}{{ 'abc'[10**30:] }}{{ 'abc'[::-(10**30)] }}"), "ac");
  EXPECT_EQ(*render_limited("{{ 'abc'[-(10**30):10**30] }}{{ 'abc'.find('b', 10**30) }}"), "abc-1");
  for (const char* source : {"{{ l // -1 }}", "{{ -l }}", "{{ l|abs }}", "{{ m + 1 }}", "{{ l - 1 }}", "{{ m * 2 }}",
                             "{{ 10**10**10 }}", "{{ 1e308 * 10 |int }}{{ 1e309|int }}", "{{ '%d' % 1e300 }}"}) {
    EXPECT_FALSE(render_limited(edges + source).ok()) << source;
  }
}

TEST(TemplateLimits, InvalidBytesPassThrough) {
  EXPECT_EQ(*render_limited("\xFF{{ '\xC3'|upper }}{{ 'a\xFFz'[1:]|length }}"),
            "\xFF\xC3"
            "2");
  EXPECT_FALSE(render_limited(std::string("{{ \0 }}", 7)).ok());
}

TEST(TemplateLimits, OneTemplateOnManyThreads) {
  auto parsed =
      ChatTemplate::parse("{% set x = 'const' %}{% for i in range(50) %}{{ x ~ i ~ 'tail' ~ [x] }}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  std::string expected = *parsed->render(Json::object());
  std::string a, b;
  std::thread one([&] { a = *parsed->render(Json::object()); });
  std::thread two([&] { b = *parsed->render(Json::object()); });
  one.join();
  two.join();
  EXPECT_EQ(a, expected);
  EXPECT_EQ(b, expected);
}

}  // namespace
}  // namespace millrace
