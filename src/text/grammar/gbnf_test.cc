#include "text/grammar/gbnf.h"

#include "shared_data.h"
#include "text/grammar/grammar_test.h"

namespace millrace {
namespace {

using testing::gbnf_of;
using testing::make_constraint;
using testing::TextMatcher;

TEST(Gbnf, WholeNotation) {
  TextMatcher matcher(gbnf_of(R"gbnf(
# a comment
root ::= greeting (", " name){1,2} mark?   # the first rule
greeting ::= "hello" | 'bye'
  | "\x68\u0069"
name ::= [A-Z] [a-z]* | "\"" [^"\\]+ "\""
mark ::= [!?\]] | .
)gbnf"));
  ASSERT_TRUE(matcher.ok()) << matcher.error.message;
  EXPECT_TRUE(matcher.accepts("hello, Ada"));
  EXPECT_TRUE(matcher.accepts("bye, Ada, \"the 2nd\"!"));
  EXPECT_TRUE(matcher.accepts("hi, A\xE2\x82\xAC"));
  EXPECT_FALSE(matcher.accepts("hello"));
  EXPECT_FALSE(matcher.accepts("hello, Ada, Bob, Eve"));
  EXPECT_FALSE(matcher.accepts("hello, ada"));
}

TEST(Gbnf, RunsAmbiguousAndNestedRules) {
  TextMatcher matcher(gbnf_of("root ::= \"a\" root root | \"a\" | \"(\" root \")\"\n"));
  ASSERT_TRUE(matcher.ok());
  for (int n = 1; n < 60; ++n) EXPECT_EQ(matcher.accepts(std::string(static_cast<size_t>(n), 'a')), n % 2 == 1) << n;
  EXPECT_TRUE(matcher.accepts("a(a)a"));
  EXPECT_FALSE(matcher.accepts("a(a"));
  TextMatcher nullable(
      gbnf_of("root ::= opt opt \"x\" rest\nopt ::= \"(\" opt \")\" | \"\"\nrest ::= opt | \"y\" rest\n"));
  ASSERT_TRUE(nullable.ok()) << nullable.error.message;
  for (const char* text : {"x", "()x", "(())()x", "xyy", "x()", "xy(())"}) EXPECT_TRUE(nullable.accepts(text)) << text;
  for (const char* text : {"", "()()()x", "x()y"}) EXPECT_FALSE(nullable.accepts(text)) << text;
}

TEST(Gbnf, RightRecursionIsUnbounded) {
  TextMatcher matcher(gbnf_of("root ::= item root | item\nitem ::= \"[\" root \"]\" | \"x\"\n"));
  ASSERT_TRUE(matcher.ok());
  EXPECT_TRUE(matcher.accepts(std::string(20'000, 'x')));
}

TEST(Gbnf, ErrorsNameTheLine) {
  const auto message = [](const char* text) {
    const TextMatcher matcher(gbnf_of(text));
    return matcher.ok() ? std::string() : matcher.error.message;
  };
  EXPECT_NE(message("root ::= a\n").find("'a' is used but not defined"), std::string::npos);
  EXPECT_NE(message("start ::= \"a\"\n").find("no rule 'root'"), std::string::npos);
  EXPECT_NE(message("root ::= \"a\n").find("not closed"), std::string::npos);
  EXPECT_NE(message("root ::= \"a\"\nb ::= (\"x\"\n").find("line 3"), std::string::npos);
  EXPECT_NE(message("root ::= root \"a\" | \"a\"\n").find("calls itself"), std::string::npos);
  EXPECT_NE(message("root ::= b \"a\"\nb ::= c\nc ::= \"\" | root\n").find("calls itself"), std::string::npos);
  EXPECT_NE(message("root ::= \"(\" root \")\"\n").find("no text satisfies"), std::string::npos);
  EXPECT_NE(message("root ::= <think>\n").find("not supported"), std::string::npos);
  EXPECT_NE(message("").find("no rule 'root'"), std::string::npos);
}

TEST(Gbnf, PublishedGrammars) {
  MILLRACE_NEEDS_SHARED("benchmarks/gbnf/json.gbnf");
  const std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> texts = {
      {"arithmetic", {{"1 +2 *(x_1 -3) = 4\n", "a=b\nc=d\n"}, {"1 + = 2\n", "1=2"}}},
      {"c", {{"int main(int a){return  a+1;}"}, {"int main("}}},
      {"chess", {{"1. e4 e5\n2. Nf3 Nc6\n"}, {"1. e4 e5\n", "1. e9 e5\n2. a3 a6\n"}}},
      {"english", {{"Hello, world!"}, {"", "caf\xC3\xA9"}}},
      {"japanese", {{"\xE3\x81\x93\xE3\x82\x93 \xE4\xB8\x96"}, {"hello"}}},
      {"json", {{"{\"a\": [1, 2.5e3, true, null, \"x\\n\"]}", "{}"}, {"[1]", "{\"a\": }"}}},
      {"json_arr", {{"[\n1,\n{\"a\": \"b\"}]"}, {"[1]"}}},
      {"list", {{"- one\n- two\n"}, {"", "one\n"}}},
  };
  for (const auto& [name, cases] : texts) {
    TextMatcher matcher(gbnf_of(testing::read_file(testing::shared_data() / "benchmarks/gbnf" / (name + ".gbnf"))));
    ASSERT_TRUE(matcher.ok()) << name << ": " << matcher.error.message;
    for (const auto& text : cases.first) EXPECT_TRUE(matcher.accepts(text)) << name << ": " << text;
    for (const auto& text : cases.second) EXPECT_FALSE(matcher.accepts(text)) << name << ": " << text;
  }
}

TEST(Trigger, TextIsFreeUntilItOccurs) {
  TextMatcher matcher(make_constraint(Constraint::Kind::regex, "[0-9]+", "abab"));
  ASSERT_TRUE(matcher.ok()) << matcher.error.message;
  for (const char* text : {"", "anything at all", "aba", "abab1", "xabab12", "aabab7"})
    EXPECT_TRUE(matcher.accepts(text)) << text;
  for (const char* text : {"abab", "ababx", "xx abab1x", "ababab1"}) EXPECT_FALSE(matcher.accepts(text)) << text;
}

TEST(Choice, AcceptsEachTextAndNothingElse) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::choice;
  constraint.choices = {"yes", "yes, please", "no"};
  TextMatcher matcher(constraint);
  ASSERT_TRUE(matcher.ok());
  for (const char* text : {"yes", "yes, please", "no"}) EXPECT_TRUE(matcher.accepts(text));
  for (const char* text : {"", "ye", "yes, ", "nope"}) EXPECT_FALSE(matcher.accepts(text));
  constraint.choices = {};
  EXPECT_FALSE(TextMatcher(constraint).ok());
  constraint.choices = {"a", ""};
  EXPECT_FALSE(TextMatcher(constraint).ok());
}

}  // namespace
}  // namespace millrace
