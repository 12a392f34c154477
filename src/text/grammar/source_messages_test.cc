// Rejected GBNF, regexes, structures and other constraints: the exact error messages, and the size limits.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

using Kind = Constraint::Kind;
struct RefusedSource {
  std::string text;
  std::string message;
};

void expect_refusals(Kind kind, ErrorKind error, const std::vector<RefusedSource>& table) {
  for (const auto& [text, message] : table) {
    const TextMatcher matcher(make_constraint(kind, text));
    ASSERT_FALSE(matcher.ok()) << text;
    EXPECT_EQ(matcher.error.message, message) << text;
    EXPECT_EQ(matcher.error.kind, error) << text;
  }
}

TEST(GbnfMessages, WithTheLine) {
  expect_refusals(Kind::grammar, ErrorKind::user,
                  {{"root ::= \"\xFF\"", "grammar: is not valid UTF-8"},
                   {"root", "grammar: expected NAME ::= in line 1"},
                   {"\n\n= x", "grammar: expected NAME ::= in line 3"},
                   {"root ::= \"a\"\nroot ::= \"b\"", "grammar: rule 'root' is defined twice in line 2"},
                   {"root ::= b", "grammar: rule 'b' is used but not defined"},
                   {"# only a comment", "grammar: there is no rule 'root'"},
                   {"root ::= (\"a\"\n", "grammar: a ( is not closed in line 2"},
                   {"root ::= \"a\n", "grammar: a literal is not closed in line 2"},
                   {"root ::= 'a\\", "grammar: the text ends in a backslash in line 1"},
                   {"root ::= [a", "grammar: a [ is not closed in line 1"},
                   {"root ::= \"\\q\"", "grammar: \\q is not a valid escape in line 1"},
                   {"root ::= \"\\x4g\"", "grammar: an escape needs hexadecimal digits in line 1"},
                   {"root ::= \"\\x4", "grammar: an escape needs hexadecimal digits in line 1"},
                   {"root ::= \"\\ud800\"", "grammar: the code point does not exist in line 1"},
                   {"root ::= \"\\udfff\"", "grammar: the code point does not exist in line 1"},
                   {"root ::= \"\\U00110000\"", "grammar: the code point does not exist in line 1"},
                   {"root ::= [b-a]", "grammar: the bounds of a range are in the wrong order in line 1"},
                   {"root ::= \"a\"{}", "grammar: { needs a number in line 1"},
                   {"root ::= \"a\"{2", "grammar: a { is not closed in line 1"},
                   {"root ::= \"a\"{3,2}", "grammar: the minimum of a repetition exceeds its maximum in line 1"},
                   {"root ::= \"a\" & \"b\"", "grammar: unexpected '&' in line 1"},
                   {"root ::= root \"a\" | \"b\"",
                    "grammar: rule 'root' is left-recursive; make it consume text before it calls itself"},
                   {"root ::= a\na ::= \"\" b\nb ::= \"x\"? a", "grammar: no text satisfies it"},
                   {"root ::= a | \"y\"\na ::= \"\" b\nb ::= \"x\"? a | \"z\"",
                    "grammar: rule 'a' is left-recursive; make it consume text before it calls itself"},
                   {"root ::= \"(\" root \")\"", "grammar: no text satisfies it"}});
  expect_refusals(
      Kind::grammar, ErrorKind::unsupported,
      {{"root ::= <[1]>", "grammar: tokens in <...> are not supported; write their text"},
       {"root ::= !<[1]>", "grammar: tokens in <...> are not supported; write their text"},
       {"root ::= \"a\"{10001}", "grammar: a repetition of more than 10000"},
       {"root ::= \"a\"{0,10001}", "grammar: a repetition of more than 10000"},
       {"root ::= \"a\"{10001,}", "grammar: a repetition of more than 10000"},
       {"root ::= \"a\"{99999999999999999999}", "grammar: a repetition of more than 10000"},
       {"root ::= " + std::string(201, '(') + "\"a\"" + std::string(201, ')'), "grammar: nested too deeply"},
       {"root ::= \"" + std::string(1 << 20, 'a') + "\"", "constraint: longer than 1048576 bytes"}});
  for (const std::string& source :
       {std::string("root ::= \"a\"{10000}"), std::string("root ::= \"a\"{0,10000}"),
        std::string("root ::= \"a\"{10000,}"), "root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')')})
    EXPECT_TRUE(TextMatcher(gbnf_of(source)).ok()) << source.substr(0, 40);
}

TEST(GbnfMessages, EscapesAndBrackets) {
  const auto only = [](const std::string& source, const std::vector<std::string>& in,
                       const std::vector<std::string>& out) {
    TextMatcher matcher(gbnf_of("root ::= " + source));
    ASSERT_TRUE(matcher.ok()) << source << ": " << matcher.error.message;
    for (const auto& text : in) EXPECT_TRUE(matcher.accepts(text)) << source << " '" << text << "'";
    for (const auto& text : out) EXPECT_FALSE(matcher.accepts(text)) << source << " '" << text << "'";
  };
  for (int c = 0x20; c < 0x7F; ++c) {
    const std::string text(1, static_cast<char>(c));
    only(fmt::format("\"\\x{:02x}\"", c), {text}, {"", "\x1F", text + text});
    only(fmt::format("\"\\x{:02X}\\u{:04x}\\U{:08X}\"", c, c, c), {text + text + text}, {text + text});
  }
  only("\"\\n\\r\\t\\\\\\\"\\'\\[\\]\\-\\^\"", {"\n\r\t\\\"'[]-^"}, {""});
  only("'a\"b'", {"a\"b"}, {"ab"});
  only("\"\\ud7ff\\ue000\\U0010FFFF\"", {"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"}, {""});
  only("[b-da\\]x-]", {"a", "b", "c", "d", "]", "x", "-"}, {"e", "[", "\\", "", "ab"});
  only("[^b-d\\n]", {"a", "e", "\xC3\xA9", "\xF4\x8F\xBF\xBF", "-", "^"}, {"b", "c", "d", "\n", ""});
  only("[\\x41-\\u0043é-ü]", {"A", "B", "C", "é", "ü", "ö"}, {"@", "D", "è", "ý"});
  only("[ca-bb-d]", {"a", "b", "c", "d"}, {"e"});
  only(".", {"\n", "a", "\xF0\x9F\x98\x80"}, {"", "ab", "\xF0\x9F", "\xED\xA0\x80"});
  only("\"a\" {2 , 3} \"b\" { 1 } \"c\" {0,}", {"aab", "aaab", "aabcc"}, {"ab", "aaaab", "aabb"});
  only("\"a\"{2}{2}", {"aaaa"}, {"aa", "aaa", "aaaaa"});
  only("\"a\"+?", {"", "a", "aa"}, {"b"});
  only("r-2_X\nr-2_X::=\"x\"|", {"x", ""}, {"y"});
  only("x # comment\n  | \"y\"\nx ::= \"z\" # last", {"y", "z"}, {""});
  only("\"a\"\r\n\t| 'b'", {"a", "b"}, {""});
}

TEST(RegexMessages, WithTheByte) {
  const auto at = [](const char* why, int byte, const char* text) {
    return RefusedSource{text, fmt::format("regex: {} at byte {} of '{}'", why, byte, text)};
  };
  const auto refused = [](const char* what, int byte, const char* text) {
    return RefusedSource{text, fmt::format("regex: {} are not supported, at byte {} of '{}'", what, byte, text)};
  };
  expect_refusals(Kind::regex, ErrorKind::user,
                  {at("a ) has no matching (", 1, "a)b"),
                   at("a ( is not closed", 3, "(ab"),
                   at("a group's name is not closed", 3, "(?<ab"),
                   at("there is nothing to repeat", 2, "a|*"),
                   at("there is nothing to repeat", 0, "+"),
                   at("a repetition cannot be repeated", 2, "a**"),
                   at("^ and $ cannot be repeated", 2, "^*"),
                   at("^ and $ cannot be repeated", 5, "a${2}"),
                   at("the minimum of a repetition exceeds its maximum", 6, "a{3,2}"),
                   at("a [ is not closed", 2, "[a"),
                   at("a [ is not closed", 3, "[a-"),
                   at("the bounds of a range are in the wrong order", 4, "[b-a]"),
                   at("the text ends in a backslash", 1, "\\"),
                   at("\\q is not a valid escape", 2, "\\q"),
                   at("octal escapes are not allowed", 2, "\\01"),
                   at("\\c needs a letter", 3, "\\c1"),
                   at("\\c needs a letter", 2, "\\c"),
                   at("\\p needs a property's name in braces", 2, "\\pL"),
                   at("a property's name is not closed", 3, "\\p{L"),
                   at("the code point does not exist", 6, "\\ud800"),
                   at("the code point does not exist", 10, "\\u{110000}"),
                   at("the code point does not exist", 6, "\\udc00"),
                   at("an escape is not closed", 5, "\\u{41")});
  expect_refusals(Kind::regex, ErrorKind::user, {{"\xFF", "regex: is not valid UTF-8"}});
  expect_refusals(Kind::regex, ErrorKind::unsupported,
                  {refused("look-aheads", 2, "(?=a)"),
                   refused("look-aheads", 2, "(?!a)"),
                   refused("look-behinds", 2, "(?<=a)"),
                   refused("look-behinds", 2, "(?<!a)"),
                   refused("groups with flags", 2, "(?i)a"),
                   refused("word boundaries", 2, "\\b"),
                   refused("word boundaries", 2, "\\B"),
                   refused("word boundaries", 3, "[\\B]"),
                   refused("back references", 2, "\\1"),
                   refused("back references", 2, "\\9"),
                   refused("back references", 2, "\\k<a>"),
                   {"a{100001}", "regex: a repetition of more than 100000 in 'a{100001}'"},
                   {"a{0,100001}", "regex: a repetition of more than 100000 in 'a{0,100001}'"},
                   {"\\p{Greek}", "regex: the Unicode property 'Greek' is not supported"},
                   {std::string(201, '(') + std::string(201, ')'), "regex: nested too deeply"},
                   {"a{100000}", "regex: too large, its automaton has more than 100000 states; simplify it"},
                   {"(a{1000}){500}", "regex: too large, it needs more than 400000 states; lower its repetitions"}});
  EXPECT_TRUE(TextMatcher(regex_of("a{99999}")).ok());
  EXPECT_TRUE(TextMatcher(regex_of(std::string(200, '(') + std::string(200, ')'))).ok());
}

TEST(RegexMessages, Escapes) {
  const auto matched = [](const std::string& regex) {  // among the first 256 characters
    TextMatcher matcher(regex_of(regex));
    EXPECT_TRUE(matcher.ok()) << regex << ": " << matcher.error.message;
    std::string out;
    for (int c = 0; c < 128; ++c)
      if (matcher.ok() && matcher.accepts(std::string(1, static_cast<char>(c)))) out += static_cast<char>(c);
    return out;
  };
  EXPECT_EQ(matched("\\d"), "0123456789");
  EXPECT_EQ(matched("\\w"), "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz");
  EXPECT_EQ(matched("\\s"), "\t\n\v\f\r ");
  EXPECT_EQ(matched("\\D").size(), 118u);
  EXPECT_EQ(matched("\\W").size(), 65u);
  EXPECT_EQ(matched("\\S").size(), 122u);
  EXPECT_EQ(matched(".").size(), 126u);
  EXPECT_EQ(matched("[^]"), matched("[\\s\\S]"));
  EXPECT_EQ(matched("\\t|\\n|\\v|\\f|\\r|\\0"), std::string("\0\t\n\v\f\r", 6));
  EXPECT_EQ(matched("[\\b]"), "\b");
  EXPECT_EQ(matched("\\ca|\\cA|\\cZ|\\cz"), "\x01\x1A");
  EXPECT_EQ(matched("\\x4a|\\x4B|\\u004c|\\u{4D}|\\u{04e}"), "JKLMN");
  EXPECT_EQ(matched("[\\w-.]"), matched("[\\w.\\-]"));
  EXPECT_EQ(matched("[a-\\d]"), "-0123456789a");
  EXPECT_EQ(matched("[a-c-e]"), "-abce");
  EXPECT_EQ(matched("[-a]"), "-a");
  EXPECT_EQ(matched("[a-]"), "-a");
  EXPECT_EQ(matched("[^\\w\\s]").size(), 59u);
  EXPECT_EQ(matched("\\.|\\*|\\/|\\-|]|}|{"), "*-./]{}");
  EXPECT_EQ(matched("a{|x"), "x");
  EXPECT_EQ(matched("(?<name>a)|(?:b)|(c)"), "abc");
  TextMatcher pair(regex_of("\\ud83d\\ude00\\u{1F600}\\u{10FFFF}"));
  EXPECT_TRUE(pair.accepts("\xF0\x9F\x98\x80\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF"));
  TextMatcher braces(regex_of("a{,2}b{x}c{1,x}d{2}?e{1,}?"));
  EXPECT_TRUE(braces.accepts("a{,2}b{x}c{1,x}ddee"));
  TextMatcher spaces(regex_of("\\s{18}"));
  EXPECT_TRUE(spaces.accepts(
      "\xC2\xA0\xE1\x9A\x80\xE2\x80\x80\xE2\x80\x81\xE2\x80\x82\xE2\x80\x83\xE2\x80\x84\xE2\x80\x85\xE2\x80\x86\xE2\x80"
      "\x87\xE2\x80\x88\xE2\x80\x89\xE2\x80\x8A\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAF\xE2\x81\x9F\xE3\x80\x80"));
  TextMatcher mark(regex_of("\\s"));
  EXPECT_TRUE(mark.accepts("\xEF\xBB\xBF"));
  for (const char* no : {"\xE2\x80\x8B", "\xE2\x80\xA7", "\xE1\x9A\x81", "\xC2\x9F", "\xC2\xA1", "\xE3\x80\x81"})
    EXPECT_FALSE(mark.accepts(no));
}

TEST(StructureMessages, WithTheLocation) {
  const std::string tag = R"({"begin":"<a>","content":{"type":"any_text"},"end":"</a>"})";
  expect_refusals(
      Kind::structure, ErrorKind::user,
      {{"7", "structure: must be a JSON object"},
       {"{", "structure: must be a JSON object"},
       {"{}", "structure: the structure: must be an object with a \"type\""},
       {R"({"type":1})", "structure: the structure: must be an object with a \"type\""},
       {R"({"type":"sequence","elements":[7]})",
        "structure: the structure.elements[0]: must be an object with a \"type\""},
       {R"({"type":"sequence"})", "structure: the structure.elements: must be a non-empty array"},
       {R"({"type":"or","elements":[]})", "structure: the structure.elements: must be a non-empty array"},
       {R"({"type":"const_string"})", "structure: the structure.value: must be a string"},
       {R"({"type":"regex","pattern":1})", "structure: the structure.pattern: must be a string"},
       {R"({"type":"grammar"})", "structure: the structure.grammar: must be a string"},
       {R"({"type":"json_schema"})", "structure: the structure.json_schema: is missing"},
       {R"({"type":"optional"})", "structure: the structure.content: is missing"},
       {R"({"type":"tag","begin":"a","end":"b"})", "structure: the structure.content: is missing"},
       {R"({"type":"tag","end":"b","content":{"type":"any_text"}})",
        "structure: the structure.begin: must be a string"},
       {R"({"type":"tag","begin":"b","content":{"type":"any_text"}})",
        "structure: the structure.end: must be a string"},
       {R"({"type":"optional","content":{"type":"tag","begin":"b","end":"","content":{}}})",
        "structure: the structure.content.content: must be an object with a \"type\""},
       {R"({"type":"text_until"})", "structure: the structure.end: must be a string"},
       {R"({"type":"text_until","end":""})", "structure: a trigger is empty"},
       {R"({"type":"triggered_tags","tags":[)" + tag + "]}",
        "structure: the structure.triggers: must be a non-empty array"},
       {R"({"type":"triggered_tags","triggers":["<"]})", "structure: the structure.tags: must be a non-empty array"},
       {R"({"type":"triggered_tags","triggers":[1],"tags":[)" + tag + "]}",
        "structure: the structure.triggers[0]: must be a string"},
       {R"({"type":"triggered_tags","triggers":["<"],"tags":[1]})",
        "structure: the structure.tags[0]: must be an object"},
       {R"({"type":"triggered_tags","triggers":["<"],"tags":[{"end":""}]})",
        "structure: the structure.tags[0].begin: must be a string"},
       {R"({"type":"triggered_tags","triggers":["<a","b"],"tags":[)" + tag + "]}",
        "structure: the structure.triggers[1]: no tag begins with this trigger"},
       {R"({"type":"triggered_tags","triggers":["<"],"tags":[)" + tag +
            R"(,{"begin":"b","content":{"type":"any_text"},"end":""}]})",
        "structure: the structure.tags[1].begin: does not begin with a trigger"},
       {R"({"type":"tags_with_separator","separator":","})",
        "structure: the structure.tags: must be a non-empty array"},
       {R"({"type":"tags_with_separator","tags":[)" + tag + "]}",
        "structure: the structure.separator: must be a string"},
       {R"({"type":"tags_with_separator","separator":"","tags":[{"begin":"x"}]})",
        "structure: the structure.tags[0].end: must be a string"}});
  std::string deep = R"({"type":"any_text"})";
  for (int i = 0; i < 16; ++i) deep = R"({"type":"optional","content":)" + deep + "}";
  EXPECT_TRUE(TextMatcher(make_constraint(Kind::structure, deep)).ok());
  std::string many = R"({"type":"or","elements":[)";
  for (int i = 0; i < 4095; ++i) many += std::string(i ? "," : "") + R"({"type":"const_string","value":"a"})";
  EXPECT_TRUE(TextMatcher(make_constraint(Kind::structure, many + "]}")).ok());
  const auto parts = [](const std::string& where) {
    return "structure: " + where + ": more than 4096 parts, or more than 16 nested";
  };
  std::string place = "the structure";
  for (int i = 0; i < 17; ++i) place += ".content";
  expect_refusals(Kind::structure, ErrorKind::unsupported,
                  {{R"({"type":"other"})", "structure: the structure: parts of type 'other' are not supported"},
                   {R"({"type":"optional","content":)" + deep + "}", parts(place)},
                   {many + R"(,{"type":"any_text"}]})", parts("the structure.elements[4095]")},
                   {R"({"type":"any_text","weakened":[7,"one thing"],"strict":true})",
                    "structure: one thing; strict mode requires exact enforcement: change the request or omit strict"},
                   {R"({"type":"text_until","end":")" + std::string(16385, 'a') + "\"}",
                    "structure: the triggers are longer than 16384 bytes"}});
  EXPECT_TRUE(
      TextMatcher(make_constraint(Kind::structure, R"({"type":"text_until","end":")" + std::string(16384, 'a') + "\"}"))
          .ok());
  TextMatcher weak(
      make_constraint(Kind::structure, R"({"type":"any_text","weakened":["one",7,"two"],"strict":false})"));
  ASSERT_TRUE(weak.ok());
  EXPECT_EQ(weak.notes.weakened, (std::vector<std::string>{"one", "two"}));
}

TEST(ConstraintMessages, ChoicesAndTriggers) {
  Constraint choice = make_constraint(Kind::choice, "");
  const auto message = [&] { return TextMatcher(choice).error.message; };
  EXPECT_EQ(message(), "choice: the list of choices is empty");
  choice.choices = {"a", ""};
  EXPECT_EQ(message(), "choice: a choice must not be empty");
  choice.choices.assign(10'000, "a");
  EXPECT_EQ(message(), "");
  choice.choices.emplace_back("a");
  EXPECT_EQ(message(), "choice: more than 10000 texts or 1048576 bytes");
  choice.choices = {std::string(1 << 20, 'a'), "b"};
  EXPECT_EQ(message(), "choice: more than 10000 texts or 1048576 bytes");
  EXPECT_EQ(TextMatcher(make_constraint(Kind::none, "")).error.message, "constraint: its kind is not set");
  EXPECT_TRUE(TextMatcher(make_constraint(Kind::regex, "a", std::string(1024, 't'))).ok());
  EXPECT_EQ(TextMatcher(make_constraint(Kind::regex, "a", std::string(1025, 't'))).error.message,
            "constraint: the trigger is longer than 1024 bytes");
}

}  // namespace
}  // namespace millrace::testing
