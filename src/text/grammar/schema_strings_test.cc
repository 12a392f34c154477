// Strings under patterns, lengths and formats, against plain definitions.
#include "text/grammar/schema_strings.h"

#include <fmt/format.h>

#include <regex>
#include <tuple>

#include "text/grammar/grammar_test.h"
#include "text/grammar/pattern.h"
#include "text/unicode.h"

namespace millrace::testing {
namespace {

std::vector<std::string> words(std::string_view letters, size_t longest) {
  std::vector<std::string> out{""};
  for (size_t i = 0; out[i].size() < longest; ++i)
    for (const char c : letters) out.push_back(out[i] + c);
  return out;
}

TEST(SchemaStrings, PatternsMatchAnywhere) {
  const std::vector<std::string> all = words("ab-", 5);
  for (const char* pattern : {"a",        "^a",        "a$",        "^a$",
                              "ab|ba",    "^ab|ba$",   "^(ab|ba)$", "a{2}",
                              "^a{2,3}$", "(ab)+",     "^(a|b)*$",  "^[^-]*$",
                              "[a-b]-",   "^$",        "",          "a.b",
                              "^.{3}$",   "-$",        "(^a|b$)",   "^(a|ab)(b|-)?$",
                              "a*b+-?",   "^(?:a|-)b", "((a))",     "^[ab]{0,2}-[ab]{0,2}$",
                              "(a|b){4}", "(^|-)a",    "a($|-)",    "\\x61\\u0062",
                              "^\\w+$",   "\\W",       "\\d|b",     "^\\D*$",
                              "\\s",      "^\\S{2}$"}) {
    const std::regex reference(pattern);
    TextMatcher plain(schema_of(SchemaJson{{"type", "string"}, {"pattern", pattern}}.dump()));
    TextMatcher turned(schema_of(SchemaJson{{"type", "string"}, {"not", {{"pattern", pattern}}}}.dump()));
    TextMatcher sized(
        schema_of(SchemaJson{{"type", "string"}, {"pattern", pattern}, {"minLength", 2}, {"maxLength", 3}}.dump()));
    for (const std::string& text : all) {
      const bool found = std::regex_search(text, reference);
      const std::string json = "\"" + text + "\"";
      ASSERT_EQ(plain.ok() && plain.accepts(json), found) << pattern << " in " << text;
      ASSERT_EQ(turned.ok() && turned.accepts(json), !found) << "not " << pattern << " in " << text;
      ASSERT_EQ(sized.ok() && sized.accepts(json), found && text.size() >= 2 && text.size() <= 3)
          << pattern << " in " << text;
    }
  }
}

TEST(SchemaStrings, LeadingLookAhead) {
  const std::vector<std::string> all = words("ab]", 5);
  for (const char* pattern :
       {"^(?=a)", "^(?!a)b", "^(?!ab)[ab]+$", "^(?=.*b)(?!.*bb)[ab]*$", "^(?=[)\\]])", "^(?=\\])", "^(?!(a|b){3})",
        "^(?=a(?:b|a))a", "^(?=a)a|b", "^(?!a)", "^(?=a)(?=.b)", "^(?![a-b)]b)a(b|)", "^(?=[\\]])."}) {
    const std::regex reference(pattern);
    TextMatcher matcher(schema_of(SchemaJson{{"type", "string"}, {"pattern", pattern}}.dump()));
    if (std::string_view(pattern) == "^(?=a)a|b") {
      EXPECT_FALSE(matcher.ok()) << "the look-ahead is not for all of the text";
      continue;
    }
    ASSERT_TRUE(matcher.ok()) << pattern << ": " << matcher.error.message;
    for (const std::string& text : all)
      ASSERT_EQ(matcher.accepts("\"" + text + "\""), std::regex_search(text, reference)) << pattern << " in " << text;
  }
  for (const char* pattern :
       {"(?=a)b", "^(?=a)*b", "^(?=a){2}b", "^(?!a)+", "^(?=a)?b", "^(?=a)b|c", "^(?=a", "^a(?=b)", "^(?=a)(b|c)|d"}) {
    const TextMatcher matcher(schema_of(SchemaJson{{"type", "string"}, {"pattern", pattern}}.dump()));
    EXPECT_FALSE(matcher.ok()) << pattern;
  }
  for (const char* pattern :
       {"^(?=a)(b|a)", "^(?=[|])\\|", "^(?=a)[|a]", "^(?=\\()\\(", "^(?=a)[\\]|a]", "^(?=a)[(]?a"})
    EXPECT_TRUE(TextMatcher(schema_of(SchemaJson{{"type", "string"}, {"pattern", pattern}}.dump())).ok()) << pattern;
}

TEST(SchemaStrings, PatternsWithLengths) {
  const std::vector<std::pair<std::string, uint32_t>> parts = {{"a", 'a'},
                                                               {"\\n", '\n'},
                                                               {"\\u0001", 1},
                                                               {"\xC3\xA9", 0xE9},
                                                               {"\xE2\x82\xAC", 0x20AC},
                                                               {"\xF0\x9F\x98\x80", 0x1F600},
                                                               {"\\\"", '"'}};
  for (const auto& [pattern, fewest, most] : {std::tuple{"^[^x]*$", 0u, 99u},
                                              {"^[^x]{2,5}$", 2u, 5u},
                                              {"^(..)*$", 0u, 99u},
                                              {"[^x]{3}", 3u, 99u},
                                              {"^([^x]{2}|[^x]{4})$", 2u, 4u}})
    for (uint32_t min = 0; min < 6; ++min)
      for (uint32_t max = min; max < 7; ++max) {
        TextMatcher matcher(schema_of(
            fmt::format(R"({{"type":"string","pattern":"{}","minLength":{},"maxLength":{}}})", pattern, min, max)));
        for (uint32_t n = 0; n < 8; ++n)
          for (size_t turn = 0; turn < parts.size(); ++turn) {
            std::string text = "\"";
            bool line_end = false;
            for (uint32_t i = 0; i < n; ++i) {
              const auto& [spelling, c] = parts[(turn + i * (turn + 1)) % parts.size()];
              text += spelling;
              line_end |= c == '\n';
            }
            const std::string_view p = pattern;
            const bool even = p == "^(..)*$", gap = p == "^([^x]{2}|[^x]{4})$";
            bool in = n >= std::max(min, fewest) && n <= std::min(max, most);
            if (even) in &= n % 2 == 0 && !line_end;
            if (gap) in &= n != 3;
            ASSERT_EQ(matcher.ok() && matcher.accepts(text + "\""), in)
                << pattern << " " << min << " " << max << " " << text;
          }
      }
}

TEST(SchemaStrings, WithoutAPatternEveryCharacterCountsOnce) {
  for (uint32_t min = 0; min < 4; ++min)
    for (uint32_t max = min; max < 5; ++max) {
      TextMatcher matcher(schema_of(fmt::format(R"({{"type":"string","minLength":{},"maxLength":{}}})", min, max)));
      for (const char* one :
           {"a", "\\n", "\\/", "\\u00e9", "\\uD83D\\uDE00", "\\ud83d\\ude00", "\xC3\xA9", "\xE2\x82\xAC",
            "\xF0\x9F\x98\x80", "\\\\", "\x7F", "\\uABCD", "\\uDbff\\uDfFf", "\\ud7ff", "\\uE000"})
        for (uint32_t n = 0; n < 6; ++n) {
          std::string text = "\"";
          for (uint32_t i = 0; i < n; ++i) text += one;
          ASSERT_EQ(matcher.accepts(text + "\""), n >= min && n <= max) << text;
        }
    }
  TextMatcher any(schema_of(R"({"type":"string"})"));
  for (const char* bad : {"\\ud83d",
                          "\\ude00",
                          "\\ud83d\\u0041",
                          "\\ud83dx",
                          "\\ud83d\\ud83d",
                          "\\u12",
                          "\\u123g",
                          "\\x41",
                          "\\",
                          "\x01",
                          "\n",
                          "\xC3",
                          "\xC0\x80",
                          "\xED\xA0\x80",
                          "\xF4\x90\x80\x80",
                          "\xE0\x9F\xBF",
                          "\xF0\x8F\xBF\xBF",
                          "\x80",
                          "\xF5\x80\x80\x80",
                          "\xC1\xBF",
                          "\\uDC00",
                          "\\uDC00\\uD800",
                          "\\U0041",
                          "\\uDBFF\\uE000",
                          "\\uD800\\uDBFF"})
    EXPECT_FALSE(any.accepts(std::string("\"") + bad + "\"")) << bad;
  for (const char* good :
       {"\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
        "\xF4\x8F\xBF\xBF", " ", "~", "\\b\\f\\n\\r\\t\\\"\\\\\\/", "\\uD800\\uDC00", "\\uD7FF", "\\u0000"})
    EXPECT_TRUE(any.accepts(std::string("\"") + good + "\"")) << good;
}

TEST(SchemaStrings, ExcludedTexts) {
  TextMatcher matcher(schema_of(R"({"type":"string","not":{"enum":["","a","b\n","\u0001\"",7]},"maxLength":2})"));
  ASSERT_TRUE(matcher.ok());
  for (const char* out : {"", "a", "b\\n", "\\u0001\\\"", "abc"})
    EXPECT_FALSE(matcher.accepts(std::string("\"") + out + "\"")) << out;
  for (const char* in : {"b", "aa", "\\n", "7", "\\u0001", "\\\""})
    EXPECT_TRUE(matcher.accepts(std::string("\"") + in + "\"")) << in;
}

struct FormatCase {
  const char* format;
  std::vector<const char*> in, out;
};

TEST(SchemaStrings, Formats) {
  const FormatCase cases[] = {
      {"date",
       {"2024-02-29", "2000-02-29", "0000-01-01", "1999-12-31", "2023-04-30", "2023-10-10", "2023-09-30", "2023-11-30",
        "1996-02-29", "2023-01-31", "2400-02-29", "2012-02-29"},
       {"2023-02-29", "1900-02-29", "2100-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "2023-01-00", "2023-01-32",
        "23-01-01", "2023-1-01", "2023-01-011", "2023-06-31", "2023-09-31", "2023-11-31", "2023/01/01", "2022-02-29",
        "2200-02-29"}},
      {"time",
       {"00:00:00Z", "23:59:59Z", "12:30:00.5Z", "12:30:00.123456789+01:30", "19:00:00-23:59"},
       {"24:00:00Z", "12:60:00Z", "12:00:60Z", "12:00:00", "12:00Z", "12:00:00.Z", "12:00:00+24:00",
        "12:00:00.1234567890Z", "12:00:00+1:00", "12:00:00z"}},
      {"date-time",
       {"2024-02-29T00:00:00Z", "2023-01-01t10:00:00.5+02:00"},
       {"2024-02-30T00:00:00Z", "2024-02-29 00:00:00Z", "2024-02-29", "2024-02-29T24:00:00Z"}},
      {"duration",
       {"P1Y", "P1Y2M3D", "P1M", "P3D", "P1W", "PT1H", "PT1H2M3S", "PT5M", "PT7S", "P1DT12H", "P1Y2MT3M4S", "P10W"},
       {"P", "PT", "1D", "P1", "P1H", "PT1D", "P1Y3D", "P1W2D", "PT1H3S", "P1DT", "P1S", "p1D", "P1D1M"}},
      {"email",
       {"a@b", "first.last+tag@ex-ample.co", "x!#$%@y1", "a@1.2"},
       {"a", "@b", "a@", "a..b@c", ".a@b", "a.@b", "a@-b", "a@b-", "a@b..c", "a b@c", "a@b_c", "a@b."}},
      {"hostname",
       {"a", "a.b", "a-b.c1", "1.2", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
       {"", "-a", "a-", "a..b", ".a", "a.", "a_b", "a b",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}},
      {"ipv4",
       {"0.0.0.0", "255.255.255.255", "1.2.3.4", "192.168.10.99", "249.250.199.100"},
       {"256.0.0.0", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", "300.1.1.1", "1.2.3.260", "a.b.c.d"}},
      {"ipv6",
       {"::", "::1", "1::", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::8", "1:2::7:8", "1:2:3::6:7:8",
        "1:2:3:4::6:7:8", "1:2:3:4:5::7:8", "1:2:3:4:5:6::8", "1:2:3:4:5:6:1.2.3.4", "::1.2.3.4", "::5:1.2.3.4",
        "ABCD:ef01::"},
       {":", ":::", "1", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "g::", "1:2:3:4:5:6:7:1.2.3.4",
        "::1.2.3", "::256.1.1.1", ":1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8:"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426614174000", "ABCDEF00-0000-0000-0000-000000000000"},
       {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
        "123e4567-e89b-12d3-a456-4266141740000", "g23e4567-e89b-12d3-a456-426614174000"}},
      {"uri",
       {"http://a", "http://a/b/c?d=e&f#g", "urn:x:y", "mailto:a@b", "http://u:p@h:80/", "http://[::1]:8/x",
        "a:", "file:///x", "x:/a/b", "h://%41/%20", "a+b-c.1:d", "x:?q", "http://a//b", "http://a#/?"},
       {"", "a", "//a", "/a", "1a:b", ":a", "http://a b", "http://[::1", "x:%4", "x:%gg", "http://a#b#c", "x:<>",
        "x:\xC3\xA9", "x://h:8a"}},
      {"uri-reference",
       {"", "a", "//a", "/a/b", "http://a", "?q", "#f", "a/b?c#d", "a:b", "//u@h:1/p", "./a:b"},
       {"a b", "%", "#a#b", "\\\\", "<"}},
      {"json-pointer", {"", "/", "/a", "/a/b", "/~0~1", "//", "/ "}, {"a", "/~", "/~2", "#/a", "~0"}},
      {"relative-json-pointer",
       {"0", "1", "10/a", "0#", "2/~1", "0/"},
       {"", "01", "-1", "/a", "0##", "0~", "1/~2", "#"}}};
  for (const FormatCase& one : cases) {
    TextMatcher matcher(schema_of(fmt::format(R"({{"type":"string","format":"{}"}})", one.format)));
    ASSERT_TRUE(matcher.ok()) << matcher.error.message;
    EXPECT_TRUE(matcher.notes.weakened.empty() && matcher.notes.ignored.empty());
    EXPECT_TRUE(standard_format(one.format));
    for (const char* text : one.in)
      EXPECT_TRUE(matcher.accepts("\"" + spell_json(text) + "\"")) << one.format << " " << text;
    for (const char* text : one.out)
      EXPECT_FALSE(matcher.accepts("\"" + spell_json(text) + "\"")) << one.format << " " << text;
  }
  for (const char* format : {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "regex"}) {
    EXPECT_TRUE(standard_format(format) && format_pattern(format).empty()) << format;
    TextMatcher matcher(schema_of(fmt::format(R"({{"type":"string","format":"{}"}})", format)));
    ASSERT_TRUE(matcher.ok());
    EXPECT_TRUE(matcher.accepts("\"any\""));
    EXPECT_EQ(matcher.notes.weakened, std::vector<std::string>{fmt::format("/format '{}' is not enforced", format)});
  }
  EXPECT_FALSE(standard_format("colour"));
}

TEST(SchemaStrings, SpellingOfEachCharacter) {
  for (uint32_t c = 0; c < 0x100; ++c) {
    std::string text;
    append_utf8(text, c);
    const std::string json = spell_json(text);
    EXPECT_EQ(nlohmann::json::parse("\"" + json + "\"").get<std::string>(), text) << c;
    const bool short_escape = c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t';
    EXPECT_EQ(json.size(), c < 0x20 && !short_escape ? 6 : short_escape ? 2 : text.size()) << c;
    TextMatcher constant(schema_of("{\"const\":\"" + json + "\"}")),
        pattern(schema_of(SchemaJson{{"type", "string"}, {"pattern", fmt::format("^\\u{:04x}$", c)}}.dump()));
    EXPECT_TRUE(constant.accepts("\"" + json + "\"")) << c;
    EXPECT_TRUE(pattern.accepts("\"" + json + "\"")) << c;
    EXPECT_FALSE(pattern.accepts("\"" + json + json + "\"")) << c;
  }
}

}  // namespace
}  // namespace millrace::testing
