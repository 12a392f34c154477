// A schema whose exact form becomes too large only when it is compiled is compiled again with oneOf as anyOf.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"
#include "text/grammar/schema.h"

namespace millrace::testing {
namespace {

using Notes = std::vector<std::string>;

// Exactly one of the three: the negations of the other two demand different members with the same keys.
constexpr const char* kThree =
    R"("type":"object","oneOf":[{"patternProperties":{"^a":{"type":"null"}}},{"patternProperties":{"b$":{"type":"string"}}},{"patternProperties":{"c":{"type":"integer"}}}])";
constexpr const char* kThreeAreWeak = "/oneOf is enforced as anyOf: a value may match more than one of its schemas";

TEST(SchemaWeaken, OneOfThatIsTooLargeToNegateBecomesAnyOf) {
  TextMatcher matcher(schema_of(fmt::format("{{{}}}", kThree)));
  ASSERT_TRUE(matcher.ok()) << matcher.error.message;
  EXPECT_EQ(matcher.notes.weakened, Notes{kThreeAreWeak});
  for (const char* in : {"{}", R"({"ab":null})", R"({"ab":"x"})", R"({"cab":1})"})
    EXPECT_TRUE(matcher.accepts(in)) << in;
  for (const char* out : {R"({"acb":true})", "[]", "1"}) EXPECT_FALSE(matcher.accepts(out)) << out;
  const TextMatcher strict(schema_of(fmt::format(R"({{"x-millrace-strict":true,{}}})", kThree)));
  EXPECT_EQ(strict.error.message,
            fmt::format("JSON schema: {}; strict mode requires exact enforcement: change the schema or omit strict",
                        kThreeAreWeak));
  EXPECT_EQ(strict.error.kind, ErrorKind::unsupported);
}

TEST(SchemaWeaken, NeedsNoBudget) {
  GrammarSpec spec;
  GrammarNotes notes;
  ASSERT_TRUE(compile_json_schema(spec, fmt::format("{{{}}}", kThree), {}, notes).ok());
  EXPECT_EQ(notes.weakened, Notes{kThreeAreWeak});
}

// Where the budget is used up, a weaker form would be no answer.
TEST(SchemaWeaken, ASpentBudgetIsAnError) {
  CompileBudget budget;
  GrammarLimits limits;
  limits.budget = &budget;
  GrammarSpec spec;
  GrammarNotes notes;
  EXPECT_FALSE(budget.take(int64_t{1} << 40).ok());
  const auto refused = compile_json_schema(spec, fmt::format("{{{}}}", kThree), limits, notes);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "grammar: compiling it takes more than 256 MiB; simplify it");
  EXPECT_TRUE(notes.weakened.empty());
}

TEST(SchemaWeaken, AnErrorOfTheUserStaysOne) {
  const TextMatcher wrong(
      schema_of(R"({"properties":{"a":{"oneOf":[{"minimum":1},{"maximum":2}]},"b":{"type":"strin"}}})"));
  EXPECT_EQ(wrong.error.message, "JSON schema: /properties/b/type: \"strin\" is not a type");
  EXPECT_EQ(wrong.error.kind, ErrorKind::user);
  EXPECT_TRUE(wrong.notes.weakened.empty());
}

TEST(SchemaWeaken, WithoutANegatedOneOfTheErrorStays) {
  const TextMatcher large(
      schema_of(R"({"allOf":[{"oneOf":[{"type":"object"},{"type":"null"}]},{"type":"object","minProperties":3}]})"));
  EXPECT_EQ(large.error.message,
            "JSON schema: /minProperties: 3 with 0 of them required is not supported where other property names are "
            "arbitrary");
}

// The exact form enforces the doubly negated schema too, and so notes its keywords; the weak one has no use for it.
TEST(SchemaWeaken, NotesAreThoseOfTheFormThatIsUsed) {
  const char* text =
      R"({{"anyOf":[{{{}}},{{"oneOf":[{{"not":{{"type":"string","format":"iri","x-one":1}}}},{{"maxLength":3}}]}}]}})";
  TextMatcher exact(schema_of(fmt::format(fmt::runtime(text), R"("type":"null")")));
  ASSERT_TRUE(exact.ok()) << exact.error.message;
  EXPECT_EQ(exact.notes.weakened, Notes{"/anyOf/1/oneOf/0/not/format 'iri' is not enforced"});
  EXPECT_EQ(exact.notes.ignored.size(), 1u);
  TextMatcher weak(schema_of(fmt::format(fmt::runtime(text), kThree)));
  ASSERT_TRUE(weak.ok()) << weak.error.message;
  EXPECT_EQ(weak.notes.weakened,
            (Notes{"/anyOf/0/oneOf is enforced as anyOf: a value may match more than one of its schemas",
                   "/anyOf/1/oneOf is enforced as anyOf: a value may match more than one of its schemas"}));
  EXPECT_TRUE(weak.notes.ignored.empty());
}

}  // namespace
}  // namespace millrace::testing
