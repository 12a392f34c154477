// What "not" makes of single keywords: at the ends of their ranges, of the wrong type, and in older drafts.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

struct Negated {
  std::string schema;
  std::vector<const char*> in, out;
};

void expect_negated(const std::vector<Negated>& table) {
  for (const auto& [schema, in, out] : table) {
    TextMatcher matcher(schema_of(schema));
    ASSERT_TRUE(matcher.ok()) << schema << ": " << matcher.error.message;
    for (const char* text : in) EXPECT_TRUE(matcher.accepts(text)) << schema << " should accept " << text;
    for (const char* text : out) EXPECT_FALSE(matcher.accepts(text)) << schema << " should not accept " << text;
  }
}

const std::string kDraft7 = R"("$schema":"http://json-schema.org/draft-07/schema#",)";

TEST(SchemaNegate, BoundsAtTheEndsOfTheirRanges) {
  expect_negated({{R"({"not":{"minLength":1}})", {"\"\""}, {"\"a\"", "1", "[]"}},
                  {R"({"not":{"minLength":2}})", {"\"\"", "\"a\""}, {"\"ab\"", "null"}},
                  {R"({"not":{"minLength":4000000000}})", {"\"\"", "\"abc\""}, {"1", "{}"}},
                  {R"({"not":{"maxLength":0}})", {"\"a\"", "\"ab\""}, {"\"\"", "1"}},
                  {R"({"not":{"minItems":1}})", {"[]"}, {"[1]", "\"\""}},
                  {R"({"not":{"minItems":4000000000}})", {"[]", "[1]"}, {"{}"}},
                  {R"({"not":{"maxItems":1}})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]", "3"}},
                  {R"({"not":{"minProperties":1}})", {"{}"}, {R"({"a":1})", "[]"}},
                  {R"({"not":{"minProperties":4000000000}})", {"{}", R"({"a":1})"}, {"[]"}},
                  {R"({"not":{"maxProperties":0}})", {R"({"a":1})"}, {"{}", "[]"}},
                  {R"({"not":{"minimum":3}})", {"2", "-5"}, {"3", "\"a\""}},
                  {R"({"not":{"exclusiveMaximum":3}})", {"3", "4"}, {"2", "null"}},
                  {R"({"not":{"multipleOf":3}})", {"1", "2", "1.5"}, {"3", "0", "\"a\""}},
                  {R"({"not":{"pattern":"a"}})", {"\"b\"", "\"\""}, {"\"a\"", "1"}}});
  for (const char* nothing : {R"({"not":{"minLength":0}})", R"({"not":{"minItems":0}})",
                              R"({"not":{"minProperties":0}})", R"({"not":{}})", R"({"not":true})"})
    EXPECT_EQ(TextMatcher(schema_of(nothing)).error.message, "grammar: no text satisfies it") << nothing;
}

TEST(SchemaNegate, AValueOfTheWrongTypeIsNoKeyword) {
  for (const char* key :
       {"prefixItems", "required", "properties", "patternProperties", "allOf", "anyOf", "oneOf", "dependentRequired",
        "dependentSchemas", "dependencies", "enum", "minLength", "maxItems", "minimum", "exclusiveMaximum"})
    for (const char* value : {"\"x\"", "null"})
      expect_negated({{fmt::format(R"({{"not":{{"type":"string","{}":{}}}}})", key, value),
                       {"1", "[]", "{}", "null"},
                       {"\"\"", "\"a\""}}});
  for (const char* value : {"5", R"({"a":1})", "true"})
    expect_negated(
        {{fmt::format(R"({{"not":{{"type":"string","prefixItems":{}}}}})", value), {"1", "[1]"}, {"\"a\""}}});
}

TEST(SchemaNegate, ItemsAtTheirPlaces) {
  expect_negated(
      {{R"({"not":{"prefixItems":[{"type":"integer"},true,{"type":"null"}]}})",
        {"[\"a\"]", "[1,2,3]", "[\"a\",1]", "[1,2,3,4]"},
        {"[]", "[1]", "[1,2]", "[1,2,null]", "[1,2,null,4]", "1"}},
       {R"({"not":{"items":{"type":"integer"}}})", {"[\"a\"]", "[1,\"a\",2]"}, {"[]", "[1]", "[1,2]", "\"a\""}},
       {R"({"not":{"prefixItems":[true],"items":{"type":"integer"}}})",
        {"[1,\"a\"]", "[1,2,\"a\"]"},
        {"[\"a\",1]", "[]"}},
       {"{" + kDraft7 + R"("not":{"items":[{"type":"integer"}],"additionalItems":{"type":"null"}}})",
        {"[1,2]", "[\"a\"]", "[1,null,3]", "[\"a\",null]"},
        {"[1,null]", "[1]", "[]", "3", "[1,null,null]"}},
       {"{" + kDraft7 + R"("not":{"items":{"type":"integer"},"additionalItems":false}})",
        {"[\"a\"]", "[1,\"a\"]"},
        {"[1,2]", "[1]", "[]"}},
       {"{" + kDraft7 + R"("not":{"type":"string","additionalItems":false}})", {"[1]", "[]", "1"}, {"\"a\""}}});
}

TEST(SchemaNegate, ContainsWithItsCounts) {
  const std::string one = R"("contains":{"const":1})";
  expect_negated(
      {{"{\"not\":{" + one + "}}", {"[]", "[2]", "[2,3]"}, {"[1]", "[2,1]", "1"}},
       {"{\"not\":{" + one + ",\"minContains\":1}}", {"[]", "[2]"}, {"[1]", "[1,1]", "2"}},
       {"{\"not\":{" + one + ",\"minContains\":2}}", {"[]", "[1]", "[1,2]"}, {"[1,1]", "[1,2,1]", "3"}},
       {"{\"not\":{" + one + ",\"minContains\":3}}", {"[]", "[1,1]", "[1,2,1]"}, {"[1,1,1]", "[1,2,1,1]"}},
       {"{\"not\":{" + one + ",\"minContains\":0,\"maxContains\":1}}", {"[1,1]", "[1,2,1]"}, {"[1]", "[]", "[2]"}},
       {"{\"not\":{" + one + ",\"maxContains\":1}}", {"[1,1]", "[]", "[2]"}, {"[1]", "[1,2]", "{}"}},
       {"{\"not\":{" + one + ",\"minContains\":2,\"maxContains\":2}}", {"[1]", "[1,1,1]", "[]"}, {"[1,1]", "[1,2,1]"}},
       {"{" + kDraft7 + "\"not\":{" + one + ",\"minContains\":2}}", {"[]", "[2]"}, {"[1]", "[1,1]", "[2,1]"}},
       {"{" + kDraft7 + "\"not\":{" + one + ",\"maxContains\":0}}", {"[]", "[2]"}, {"[1]", "[1,1]"}}});
}

TEST(SchemaNegate, OneOfIsViolatedByNoneAndByTwo) {
  expect_negated({{R"({"not":{"oneOf":[{"type":"string"}]}})", {"1", "null"}, {"\"a\""}},
                  {R"({"not":{"oneOf":[{"type":"integer"},{"minimum":2,"type":"number"}]}})",
                   {"2", "5", "\"a\"", "1.5"},
                   {"1", "-3", "2.5"}},
                  {R"({"not":{"oneOf":[{"minimum":1},{"minimum":2},{"minimum":3}]},"type":"integer"})",
                   {"0", "2", "3", "4"},
                   {"1"}}});
}

// Draft 3 says of each property whether it is required; later drafts ignore that.
TEST(SchemaNegate, RequiredOfDraft3IsIgnored) {
  for (const char* flag : {"true", "false"})
    expect_negated(
        {{fmt::format(R"({{"type":"object","properties":{{"a":{{"type":"integer","required":{}}}}}}})", flag),
          {"{}", R"({"a":1})"},
          {R"({"a":"x"})"}}});
}

}  // namespace
}  // namespace millrace::testing
