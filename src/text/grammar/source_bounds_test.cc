// Sizes of sources exactly at a bound and one past it, and what messages show of a long source.
#include <fmt/format.h>

#include "text/grammar/gbnf.h"
#include "text/grammar/grammar_test.h"
#include "text/grammar/pattern.h"
#include "text/grammar/schema.h"

namespace millrace::testing {
namespace {

TEST(SourceBounds, OfNestingBesideAStructure) {
  const auto message = [](size_t lists) {  // beside the parts, where no limit on parts applies
    const std::string text = R"({"type":"any_text","x":)" + std::string(lists, '[') + std::string(lists, ']') + "}";
    return TextMatcher(make_constraint(Constraint::Kind::structure, text)).error.message;
  };
  EXPECT_EQ(message(248), "");
  EXPECT_EQ(message(249), "structure: nested more than 200 levels deep");
  EXPECT_EQ(message(5000), "structure: nested more than 200 levels deep");
}

TEST(SourceBounds, ShownOfALongRegex) {
  const std::string longer = "bc" + std::string(248, 'a'), shown = longer.substr(0, 200);
  const auto message = [](const std::string& regex) { return TextMatcher(regex_of(regex)).error.message; };
  EXPECT_EQ(message(longer + ")"), fmt::format("regex: a ) has no matching ( at byte 250 of '{}'", shown));
  EXPECT_EQ(message(longer + "\\b"),
            fmt::format("regex: word boundaries are not supported, at byte 252 of '{}'", shown));
  EXPECT_EQ(message(longer + "b{100001}"), fmt::format("regex: a repetition of more than 100000 in '{}'", shown));
  GrammarLimits limits;
  limits.dfa_states = 10;
  const auto large = search_dfa(longer, Spelling::utf8, limits);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message,
            fmt::format("regex '{}': too large, its automaton has more than 10 states; simplify it", shown));
  limits.dfa_states = 1000;
  limits.nfa_states = 100;
  EXPECT_EQ(search_dfa(longer, Spelling::json, limits).error().message,
            fmt::format("regex '{}': too large, it needs more than 100 states; lower its repetitions", shown));
}

TEST(SourceBounds, OfTexts) {
  GrammarLimits limits;
  const auto gbnf = [&](const std::string& text) {
    GrammarSpec spec;
    const auto parsed = parse_gbnf(spec, text, limits);
    return parsed.ok() ? "" : parsed.error().message;
  };
  const auto pattern = [&](const std::string& text) {
    GrammarSpec spec;
    const auto parsed = parse_pattern(spec, text, Spelling::utf8, limits);
    return parsed.ok() ? "" : parsed.error().message;
  };
  limits.source_bytes = 12;
  EXPECT_EQ(gbnf("root ::= \"a\""), "");
  EXPECT_EQ(pattern("abcdefghijkl"), "");
  limits.source_bytes = 11;
  EXPECT_EQ(gbnf("root ::= \"a\""), "grammar: longer than 11 bytes");
  EXPECT_EQ(pattern("abcdefghijkl"), "regex: longer than 11 bytes");
}

TEST(SourceBounds, OfExpressionsInGbnf) {
  const auto parsed = [](int64_t states) {
    GrammarLimits limits;
    limits.nfa_states = states;
    GrammarSpec spec;
    const auto out = parse_gbnf(spec, "root ::= \"a\" \"b\" \"c\"", limits);
    return out.ok() ? "" : out.error().message;
  };
  EXPECT_EQ(parsed(3), "");
  EXPECT_EQ(parsed(2), "grammar: too large");
}

TEST(SourceBounds, OfLookAheadsThatDoNotEnd) {
  for (const char* pattern : {"^(?=a", "^(?!a[)]", "^(?=a\\\\)", "^(?=(a)", "^(?=a)(?!b"}) {
    const std::string schema = fmt::format(R"({{"type":"string","pattern":"{}"}})", pattern);
    const TextMatcher matcher(schema_of(schema));
    ASSERT_FALSE(matcher.ok()) << pattern;
    EXPECT_EQ(matcher.error.kind, ErrorKind::unsupported) << matcher.error.message;
    EXPECT_NE(matcher.error.message.find("regex: look-aheads are not supported, at byte 3 of"), std::string::npos)
        << matcher.error.message;
  }
}

// The rules and expressions of a schema, as it is compiled: at their number it compiles, below it is refused.
TEST(SourceBounds, OfRulesAndExpressionsOfASchema) {
  std::string text = R"({"type":"object","required":["a","b"],"properties":{"a":{"type":"object","maxProperties":2})";
  for (int i = 0; i < 60; ++i) text += fmt::format(R"(,"p{}":{{"enum":["x","y"]}})", i);
  text += R"(,"b":{"type":"array","items":{"type":"object","properties":{"c":{"minLength":2}}}}}})";
  const auto compiled = [&](const GrammarLimits& limits, GrammarSpec& spec) {
    GrammarNotes notes;
    const auto out = compile_json_schema(spec, text, limits, notes);
    return out.ok() ? "" : out.error().message;
  };
  GrammarSpec all;
  ASSERT_EQ(compiled({}, all), "");
  const auto rules = std::ssize(all.rules()), size = static_cast<int64_t>(all.size());
  ASSERT_GT(rules, 5);
  const std::string refused = "JSON schema: too large; its combinations make too many different objects and lists";
  for (const int64_t missing : {0, 1}) {
    GrammarLimits fewer_rules, fewer_expressions;
    fewer_rules.rules = rules - missing;
    fewer_expressions.nfa_states = size - missing;
    GrammarSpec one, other;
    EXPECT_EQ(compiled(fewer_rules, one), missing ? refused : "");
    EXPECT_EQ(compiled(fewer_expressions, other), missing ? refused : "") << size;
  }
}

}  // namespace
}  // namespace millrace::testing
