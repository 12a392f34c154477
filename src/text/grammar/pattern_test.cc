#include "text/grammar/pattern.h"

#include "text/grammar/grammar_test.h"

namespace millrace {
namespace {

using testing::regex_of;
using testing::TextMatcher;

void expect_regex(const std::string& regex, const std::vector<std::string>& in, const std::vector<std::string>& out) {
  TextMatcher matcher(regex_of(regex));
  ASSERT_TRUE(matcher.ok()) << regex << ": " << matcher.error.message;
  for (const auto& text : in) EXPECT_TRUE(matcher.accepts(text)) << regex << " should match '" << text << "'";
  for (const auto& text : out) EXPECT_FALSE(matcher.accepts(text)) << regex << " should not match '" << text << "'";
}

TEST(Pattern, MatchesTheWholeText) {
  expect_regex("abc", {"abc"}, {"", "ab", "abcd", "xabc"});
  expect_regex("a|bc*", {"a", "b", "bccc"}, {"ac", "c"});
  expect_regex("(?:ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"});
  expect_regex("x{2}y{0,1}z{3,}", {"xxyzzz", "xxzzzz"}, {"xyzzz", "xxyyzzz", "xxzz"});
  expect_regex("a+?b*?c??", {"a", "aabbc"}, {"b"});
  expect_regex("^a$", {"a"}, {"aa", ""});
  expect_regex("(^a|b)c$", {"ac", "bc"}, {"c", "aac"});
  expect_regex("[^a-c\\d]", {"x", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "5", "", "\xC3"});
  expect_regex("[\\w.-]+", {"a_b-c.9"}, {"a b"});
  expect_regex("\\u00e9\\x41\\u{1F600}\\cJ",
               {"\xC3\xA9"
                "A\xF0\x9F\x98\x80\n"},
               {"eA"});
  expect_regex("\\p{Lu}\\P{L}",
               {"\xC3\x89"
                "1"},
               {"e1", "EE"});
  expect_regex("a{,2}", {"a{,2}"}, {"a", "aa"});  // a literal brace
  expect_regex("[\xD0\xB0-\xD1\x8F]+", {"\xD0\xBC\xD0\xB8\xD1\x80"}, {"mir"});
  expect_regex(".", {"a", "\xE2\x82\xAC"}, {"\n", "\r"});
}

TEST(Pattern, SchemaPatternsMatchAnywhere) {
  const auto search = [](const char* regex) { return std::move(search_dfa(regex, Spelling::utf8, {})).value(); };
  EXPECT_TRUE(search("b").accepts("abc"));
  EXPECT_FALSE(search("^b").accepts("abc"));
  EXPECT_TRUE(search("c$").accepts("abc"));
  EXPECT_FALSE(search("b$").accepts("abc"));
  EXPECT_TRUE(search("^$").accepts(""));
  EXPECT_FALSE(search("^$").accepts("a"));
  EXPECT_TRUE(search("^a|b$").accepts("xxb"));
  EXPECT_TRUE(search("$").accepts("anything"));
  EXPECT_FALSE(search("a^b").accepts("a^b"));
}

TEST(Pattern, JsonUsesTheCanonicalSpelling) {
  const Dfa dfa = std::move(search_dfa("^[^x]\\n\"$", Spelling::json, {})).value();
  EXPECT_TRUE(dfa.accepts("a\\n\\\""));
  EXPECT_TRUE(dfa.accepts("\\u001F\\n\\\""));
  EXPECT_TRUE(dfa.accepts("\\u001f\\n\\\""));
  EXPECT_TRUE(dfa.accepts("\\\\\\n\\\""));
  EXPECT_FALSE(dfa.accepts("a\n\\\""));
  EXPECT_FALSE(dfa.accepts("\\u0061\\n\\\""));
}

TEST(Pattern, PairsOfSurrogatesAreOneCharacter) {
  for (const auto& [regex, text] : {std::pair{"\\uD800\\uDC00", "\xF0\x90\x80\x80"},
                                    {"\\uD800\\uDFFF", "\xF0\x90\x8F\xBF"},
                                    {"\\ud83d\\ude00", "\xF0\x9F\x98\x80"},
                                    {"\\uDBFF\\uDC00", "\xF4\x8F\xB0\x80"},
                                    {"\\uDBFF\\uDFFF", "\xF4\x8F\xBF\xBF"},
                                    {"\\uD7FF", "\xED\x9F\xBF"},
                                    {"\\uE000", "\xEE\x80\x80"},
                                    {"\\uFFFF", "\xEF\xBF\xBF"}})
    expect_regex(regex, {text}, {"", "a"});
  for (const char* alone : {"\\uD800", "\\uDBFF", "\\uDC00", "\\uDFFF", "\\uD800a", "\\uDC00\\uDC00", "\\uD800\\x41"}) {
    const TextMatcher matcher(regex_of(alone));
    EXPECT_NE(matcher.error.message.find("the code point does not exist"), std::string::npos) << alone;
    EXPECT_EQ(matcher.error.kind, ErrorKind::user) << alone;
  }
}

TEST(Pattern, UnsupportedConstructsAreRejected) {
  for (const char* regex :
       {"(?=a)", "(?!a)b", "(?<=a)", "(?<!a)", "(a)\\1", "\\k<x>", "\\bword", "(?i)a", "\\p{Greek}", "a{200000}"}) {
    const TextMatcher matcher(regex_of(regex));
    ASSERT_FALSE(matcher.ok()) << regex;
    EXPECT_EQ(matcher.error.kind, ErrorKind::unsupported) << regex << ": " << matcher.error.message;
  }
  for (const char* regex :
       {"(a", "a)", "[a", "*a", "a**", "[b-a]", "a{3,2}", "\\", "\\q", "\\xZ1", "\\u{110000}", "(?<n", "\xFF"}) {
    const TextMatcher matcher(regex_of(regex));
    ASSERT_FALSE(matcher.ok()) << regex;
    EXPECT_EQ(matcher.error.kind, ErrorKind::user) << regex << ": " << matcher.error.message;
  }
  // (a|b)*a(a|b){20} has two million states as a DFA.
  const TextMatcher large(regex_of("(a|b)*a(a|b){20}"));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error.kind, ErrorKind::unsupported);
  const TextMatcher deep(regex_of(std::string(1000, '(') + std::string(1000, ')')));
  EXPECT_FALSE(deep.ok());
}

}  // namespace
}  // namespace millrace
