// Every filter, operator, method and test charges in proportion to what it reads. The cost of a template is the number
// of steps it needs; expressions whose input is 16 times longer must cost about 16 times as much, or fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/ordered_json.h"
#include "text/template/chat_template.h"
#include "text/template/natives.h"
#include "text/template/parser.h"
#include "text/template/runtime.h"
#include "text/template/text_search.h"

namespace millrace::jinja {
namespace {

// Steps of `source` beyond those that make its inputs; -1 if it fails.
int64_t steps_of(const std::string& setup, const std::string& expression) {
  const auto count = [](const std::string& source) -> int64_t {
    TemplateLimits limits;
    limits.steps = 400'000'000;
    const auto ast = parse(source, 200);
    Runtime runtime(*ast, limits, {});
    try {
      runtime.render(nlohmann::ordered_json::object());
    } catch (const Failure& failure) {
      ADD_FAILURE() << source << ": " << failure.message;
      return -1;
    }
    return limits.steps - runtime.budget.steps;
  };
  return count(setup + "{% set r = " + expression + " %}") - count(setup);
}

std::string inputs(int64_t n) {
  const std::string size = std::to_string(n);
  return "{% set s = 'a' * " + size + " %}{% set t = 'a' * " + size + " %}{% set u = 'a' * " + size +
         " ~ 'b' %}{% set half = 'a' * (" + size + " // 2) ~ 'b' %}{% set words = 'ab ' * (" + size +
         " // 3) %}{% set x = [1] * (" + size + " // 16) %}{% set y = [1] * (" + size +
         " // 16) %}{% set d = {s: 1} %}";
}

TEST(TemplateCharges, GrowWithWhatIsRead) {
  for (const char* expression : {
           "s.find(half)",
           "s.rfind(half)",
           "s.count(half)",
           "half in s",
           "s.replace(half, '')",
           "s.split(half)",
           "s.rsplit(half)",
           "s.partition(half)",
           "s.rpartition(half)",
           "s.index(half[:-1])",
           "s == t",
           "s != t",
           "s < t",
           "s is sameas t",
           "s is eq t",
           "s in [t]",
           "t in d",
           "d[t]",
           "d.get(t)",
           "[s, t]|unique|list",
           "[s]|map('upper')|list",
           "[t].count(s)",
           "[t].index(s)",
           "(s, 1) == (t, 1)",
           "s.startswith(t)",
           "s.endswith(t)",
           "s.removeprefix(u)",
           "s.removesuffix(u)",
           "s.upper()",
           "s|lower",
           "s|title",
           "s|capitalize",
           "s|trim",
           "s.strip('b')",
           "s|length",
           "s|wordcount",
           "words|wordwrap(10)",
           "s|wordwrap(10)",
           "words.split()",
           "s|indent",
           "s|escape",
           "s|striptags",
           "s|urlencode",
           "s|truncate(5)",
           "s|tojson",
           "s|pprint",
           "s|list",
           "s|reverse",
           "s|string|safe",
           "s|int(0)",
           "s|float",
           "s[1:]",
           "s[0]",
           "s + t",
           "s ~ t",
           "s * 2",
           "s is lower",
           "s is upper",
           "s.isalpha()",
           "s.isdigit() or s.istitle()",
           "s.center(5)",
           "s.zfill(5)",
           "s.swapcase()",
           "s.expandtabs()",
           "s.splitlines()",
           "s.isascii()",
           "x == y",
           "x + y",
           "x[1:]",
           "x|list",
           "x|sum",
           "x|min",
           "x|max",
           "x|sort",
           "x|reverse|list",
           "x|batch(2)|list",
           "x|slice(2)|list",
           "x|join(',')",
           "x|map('abs')|list",
           "x|select|list",
           "x|groupby('real')|list if false else x|tojson",
           "2 in x",
           "x.count(1)",
           "x * 2",
           "x|first",
           "x|last",
           "'%s' % s",
           "'{}'.format(s)",
           "'{:5}'.format(s)",
           "s|format",
           "s|replace(half, 'c')",
           "s|dictsort if false else {s: 1, t: 2}",
           "dict([(s, 1), (t, 2)])",
       }) {
    const int64_t few = steps_of(inputs(1 << 12), expression), many = steps_of(inputs(1 << 16), expression);
    if (few < 0 || many < 0) continue;
    EXPECT_GT(many, 6 * few) << expression << ": " << few << " steps, then " << many;
  }
}

TEST(TemplateCharges, SharedTuplesAreVisitedUnderTheBudget) {
  const std::string deep =
      "{% set n = namespace(x=(1,)) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}";
  for (const char* use : {"{{ {n.x: 1} }}", "{{ n.x in {} }}", "{{ {}.get(n.x) }}", "{{ [n.x, n.x]|unique|list }}",
                          "{{ dict([(n.x, 1)]) }}"}) {
    TemplateLimits limits;
    limits.steps = 300'000;
    const auto parsed = ChatTemplate::parse(deep + use, limits);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const auto rendered = parsed->render(nlohmann::ordered_json::object());
    ASSERT_FALSE(rendered.ok()) << use;
    EXPECT_EQ(rendered.error().kind, ErrorKind::resource) << use << ": " << rendered.error().message;
  }
}

TEST(TemplateCharges, SearchFindsWhatTheLibraryFinds) {
  Budget budget;
  budget.steps = budget.memory = int64_t{1} << 40;
  uint32_t random = 1;
  const auto letters = [&](size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += static_cast<char>('a' + ((random = random * 1664525 + 1013904223) >> 30) % 2);
    return out;
  };
  for (size_t needle_size : {0, 1, 3, 16, 17, 18, 24}) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::string text = letters(300), needle = letters(needle_size);
      if (repeat % 2) needle = text.substr(repeat, needle_size);
      TextSearch search(needle, budget);
      EXPECT_EQ(search.rfind(text), text.rfind(needle)) << needle;
      EXPECT_EQ(search.find(text, 30), text.find(needle, 30)) << needle;
      EXPECT_EQ(search.find(text, 300), text.find(needle, 300));
    }
  }
  EXPECT_EQ(budget.memory, int64_t{1} << 40);
}

TEST(TemplateCharges, CancelledAndLateRendersEnd) {
  const auto parsed = ChatTemplate::parse("{% for i in range(99999) %}{% endfor %}");
  ASSERT_TRUE(parsed.ok());
  const std::atomic<bool> cancelled{true};
  auto rendered = parsed->render(nlohmann::ordered_json::object(), {.cancelled = &cancelled});
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().kind, ErrorKind::cancelled);
  rendered = parsed->render(nlohmann::ordered_json::object(), {.until = std::chrono::steady_clock::time_point::min()});
  ASSERT_FALSE(rendered.ok());
  EXPECT_EQ(rendered.error().kind, ErrorKind::resource);
}

}  // namespace
}  // namespace millrace::jinja
