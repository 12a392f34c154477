// Lists of distinct items, up to where they become too many, and what stands beside a reference in an older draft.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

constexpr const char* kNotUnique = "/uniqueItems is not enforced: the items have too many possible values to track";

std::string distinct_of(int values, const std::string& others = "") {
  std::string out = R"({"type":"array","uniqueItems":true,"items":{"enum":[)";
  for (int i = 0; i < values; ++i) out += (i ? "," : "") + std::to_string(i);
  return out + "]}" + others + "}";
}

void expect_distinct(const std::string& schema, bool exact) {
  TextMatcher matcher(schema_of(schema));
  ASSERT_TRUE(matcher.ok()) << schema << ": " << matcher.error.message;
  EXPECT_EQ(matcher.notes.weakened, exact ? std::vector<std::string>() : std::vector<std::string>{kNotUnique})
      << schema;
  EXPECT_TRUE(matcher.accepts("[0,1]")) << schema;
  EXPECT_EQ(matcher.accepts("[1,1]"), !exact) << schema;
}

TEST(SchemaLists, DistinctItemsAtTheLimits) {
  expect_distinct(distinct_of(12), true);   // 4096 sets of used values
  expect_distinct(distinct_of(13), false);  // 8192
  expect_distinct(distinct_of(60, R"(,"maxItems":2)"), true);
  expect_distinct(distinct_of(61, R"(,"maxItems":2)"), false);
  const auto between = [](int least, int most) {
    return fmt::format(
        R"({{"type":"array","uniqueItems":true,"maxItems":2,"items":{{"type":"integer","minimum":{},"maximum":{}}}}})",
        least, most);
  };
  expect_distinct(between(0, 59), true);
  expect_distinct(between(0, 60), false);
  expect_distinct(between(-30, 29), true);
  expect_distinct(between(-30, 31), false);
}

TEST(SchemaLists, DistinctWholeNumbersBetweenBounds) {
  for (const auto& [bounds, first, last] : {std::tuple{R"("minimum":-1.5,"maximum":1.5)", -1, 1},
                                            {R"("minimum":0.5,"maximum":2.5)", 1, 2},
                                            {R"("exclusiveMinimum":-2,"exclusiveMaximum":2)", -1, 1},
                                            {R"("minimum":-3,"exclusiveMaximum":-1)", -3, -2},
                                            {R"("minimum":-2.5,"maximum":-0.5)", -2, -1},
                                            {R"("minimum":7,"maximum":7)", 7, 7}}) {
    TextMatcher matcher(
        schema_of(fmt::format(R"({{"type":"array","uniqueItems":true,"items":{{"type":"integer",{}}}}})", bounds)));
    ASSERT_TRUE(matcher.ok()) << bounds << ": " << matcher.error.message;
    EXPECT_TRUE(matcher.notes.weakened.empty()) << bounds;
    std::string all;
    for (int n = -5; n <= 9; ++n) {
      const bool in = n >= first && n <= last;
      EXPECT_EQ(matcher.accepts(fmt::format("[{}]", n)), in) << bounds << " " << n;
      EXPECT_FALSE(matcher.accepts(fmt::format("[{},{}]", n, n))) << bounds << " " << n;
      if (in) all += (all.empty() ? "" : ",") + std::to_string(n);
    }
    EXPECT_TRUE(matcher.accepts("[" + all + "]")) << bounds;
  }
}

TEST(SchemaLists, WithAPrefixOrADemandDistinctItemsAreWeakened) {
  const char* items = R"("uniqueItems":true,"type":"array","items":{"enum":[0,1]})";
  TextMatcher prefix(schema_of(fmt::format(R"({{{},"prefixItems":[{{"const":7}}]}})", items)));
  TextMatcher demand(schema_of(fmt::format(R"({{{},"contains":{{"const":1}}}})", items)));
  for (TextMatcher* one : {&prefix, &demand}) {
    ASSERT_TRUE(one->ok()) << one->error.message;
    EXPECT_EQ(one->notes.weakened, std::vector<std::string>{kNotUnique});
  }
  for (const char* in : {"[]", "[7]", "[7,0,1]", "[7,1,1]"}) EXPECT_TRUE(prefix.accepts(in)) << in;
  for (const char* out : {"[0]", "[7,7]", "[0,1]", "[7,2]"}) EXPECT_FALSE(prefix.accepts(out)) << out;
  for (const char* in : {"[1]", "[0,1]", "[1,1]", "[0,1,0]"}) EXPECT_TRUE(demand.accepts(in)) << in;
  for (const char* out : {"[]", "[0]", "[0,0]", "[1,2]"}) EXPECT_FALSE(demand.accepts(out)) << out;
}

// The states of the graph count, so that no rule of it has ticks.
TEST(SchemaLists, TheOrderOfDistinctItemsIsNotCounted) {
  for (
      const char* schema :
      {R"({"type":"array","uniqueItems":true,"items":{"enum":[0,1,2]}})",
       R"({"type":"array","contains":{"const":1},"items":{"enum":[0,1]},"minItems":2})",
       R"({"type":"object","additionalProperties":false,"properties":{"a":{"const":1},"b":{"const":1}},"minProperties":2})"}) {
    const auto grammar = compile_constraint(schema_of(schema));
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    for (int32_t state = 0; state < grammar->states(); ++state) EXPECT_FALSE(grammar->counted(state)) << schema;
  }
}

TEST(SchemaLists, PrefixItemsThatLeaveNoRoom) {
  for (const char* nothing :
       {R"({"type":"array","prefixItems":[true],"items":false,"minItems":2})",
        R"({"type":"array","prefixItems":[true,true],"items":false,"minItems":3,"maxItems":9})",
        R"({"type":"array","items":false,"minItems":1})", R"({"type":"array","items":false,"minItems":2})"})
    EXPECT_EQ(TextMatcher(schema_of(nothing)).error.message, "grammar: no text satisfies it") << nothing;
  TextMatcher two(schema_of(R"({"type":"array","prefixItems":[{"const":0},{"const":1}],"items":false,"minItems":2})"));
  EXPECT_TRUE(two.accepts("[0,1]"));
  for (const char* out : {"[]", "[0]", "[0,1,2]"}) EXPECT_FALSE(two.accepts(out)) << out;
}

// Beside $ref nothing else counts before 2019.
TEST(SchemaLists, KeywordsBesideAReferenceInAnOlderDraft) {
  const auto schema = [](const char* beside) {
    return fmt::format(R"({{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/list",{},
        "definitions":{{"list":{{"type":["array","object"],"minItems":1,"items":{{"enum":[0,1]}},
        "required":["a"],"properties":{{"a":{{"const":0}}}}}}}}}})",
                       beside);
  };
  for (const char* beside :
       {R"("items":{"type":"null"})", R"("items":[{"type":"null"}],"additionalItems":false)", R"("contains":false)",
        R"("maxItems":0)", R"("uniqueItems":true)", R"("properties":{"a":false})", R"("additionalProperties":false)",
        R"("patternProperties":{"":false})", R"("propertyNames":false)", R"("required":["zz"])", R"("type":"null")",
        R"("enum":[5])", R"("not":{})", R"("anyOf":[false])", R"("dependencies":{"a":["zz"]})",
        R"("minProperties":9)"}) {
    TextMatcher matcher(schema_of(schema(beside)));
    ASSERT_TRUE(matcher.ok()) << beside << ": " << matcher.error.message;
    EXPECT_TRUE(matcher.notes.weakened.empty()) << beside;
    for (const char* in : {"[0]", "[1,1]", R"({"a":0})", R"({"a":0,"b":7})"})
      EXPECT_TRUE(matcher.accepts(in)) << beside;
    for (const char* out : {"[]", "[null]", "[0,5]", "{}", R"({"a":1})", "5", "null"})
      EXPECT_FALSE(matcher.accepts(out)) << beside << " " << out;
  }
}

}  // namespace
}  // namespace millrace::testing
