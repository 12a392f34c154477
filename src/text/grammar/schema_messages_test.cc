// Rejected schemas: the exact error message and location, and the size limits.
#include <fmt/format.h>

#include <functional>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

struct Refusal {
  const char* schema;
  const char* message;
};

void expect_refusals(const std::vector<Refusal>& table, ErrorKind kind) {
  for (const auto& [schema, message] : table) {
    const TextMatcher matcher(schema_of(schema));
    ASSERT_FALSE(matcher.ok()) << schema;
    EXPECT_EQ(matcher.error.message, message) << schema;
    EXPECT_EQ(matcher.error.kind, kind) << schema;
  }
}

TEST(SchemaMessages, InvalidSchemas) {
  expect_refusals(
      {{"{", "JSON schema: is not valid JSON"},
       {"3", "JSON schema: : a schema must be an object, true or false"},
       {R"({"properties":{"a":7}})", "JSON schema: /properties/a: a schema must be an object, true or false"},
       {R"({"not":7})", "JSON schema: /not: a schema must be an object, true or false"},
       {R"({"properties":{"a":{"type":"strin"}}})", "JSON schema: /properties/a/type: \"strin\" is not a type"},
       {R"({"type":["null",4]})", "JSON schema: /type: 4 is not a type"},
       {R"({"enum":3})", "JSON schema: /enum: must be a list"},
       {R"({"minLength":-1})", "JSON schema: /minLength: must be a whole number, 0 or more"},
       {R"({"minLength":1.5})", "JSON schema: /minLength: must be a whole number, 0 or more"},
       {R"({"maxLength":"1"})", "JSON schema: /maxLength: must be a whole number, 0 or more"},
       {R"({"items":{"maxItems":-0.5}})", "JSON schema: /items/maxItems: must be a whole number, 0 or more"},
       {R"({"minItems":null})", "JSON schema: /minItems: must be a whole number, 0 or more"},
       {R"({"minProperties":-2})", "JSON schema: /minProperties: must be a whole number, 0 or more"},
       {R"({"maxProperties":[]})", "JSON schema: /maxProperties: must be a whole number, 0 or more"},
       {R"({"minimum":"1"})", "JSON schema: /minimum: must be a number"},
       {R"({"exclusiveMaximum":{}})", "JSON schema: /exclusiveMaximum: must be a number"},
       {R"({"multipleOf":0})", "JSON schema: /multipleOf: must be a number above 0"},
       {R"({"multipleOf":-2})", "JSON schema: /multipleOf: must be a number above 0"},
       {R"({"multipleOf":"2"})", "JSON schema: /multipleOf: must be a number above 0"},
       {R"({"pattern":1})", "JSON schema: /pattern: must be a string"},
       {R"({"format":1})", "JSON schema: /format: must be a string"},
       {R"({"required":"a"})", "JSON schema: /required: must be a list of names"},
       {R"({"required":["a",1]})", "JSON schema: /required: must be a list of names"},
       {R"({"allOf":[]})", "JSON schema: /allOf: must be a list of schemas"},
       {R"({"anyOf":{}})", "JSON schema: /anyOf: must be a list of schemas"},
       {R"({"oneOf":[]})", "JSON schema: /oneOf: must be a list of schemas"},
       {R"({"$ref":1})", "JSON schema: /$ref: must be a string"},
       {R"({"$dynamicRef":1})", "JSON schema: /$dynamicRef: must be a string"},
       {R"({"dependentRequired":1})", "JSON schema: /dependentRequired: must be an object"},
       {R"({"dependentSchemas":[]})", "JSON schema: /dependentSchemas: must be an object"},
       {R"({"dependencies":true})", "JSON schema: /dependencies: must be an object"},
       {R"({"properties":1})", "JSON schema: /properties: must be an object"},
       {R"({"patternProperties":[]})", "JSON schema: /patternProperties: must be an object"},
       {R"({"prefixItems":{}})", "JSON schema: /prefixItems: must be a list"},
       {R"({"contains":{},"minContains":-1})", "JSON schema: /minContains: must be a whole number, 0 or more"},
       {R"({"contains":{},"maxContains":"1"})", "JSON schema: /maxContains: must be a whole number, 0 or more"},
       {R"({"type":"string","pattern":"("})", ": regex: a ( is not closed at byte 1 of '('"},
       {R"({"type":"integer","minimum":2,"maximum":1})", "grammar: no text satisfies it"}},
      ErrorKind::user);
}

TEST(SchemaMessages, UnsupportedSchemas) {
  expect_refusals(
      {{R"({"a\u0001":1,"\u0001is":2})",
        "JSON schema: keys that begin with the control character U+0001 are not supported"},
       {R"({"minLength":4294967295})", "JSON schema: /minLength: is too large"},
       {R"({"minItems":1e20})", "JSON schema: /minItems: is too large"},
       {R"({"$recursiveRef":"#"})", "JSON schema: /$recursiveRef: is not supported"},
       {R"({"items":{"$ref":"other.json#/a"}})",
        "JSON schema: /items: $ref 'other.json#/a' has no target in this schema, and remote schemas are not fetched"},
       {R"({"$ref":"#/$defs/none"})",
        "JSON schema: : $ref '#/$defs/none' has no target in this schema, and remote schemas are not fetched"},
       {R"({"not":{"uniqueItems":true}})",
        "JSON schema: /not: 'not', 'if' or 'oneOf' over 'uniqueItems' is not supported"},
       {R"({"not":{"unevaluatedProperties":false}})",
        "JSON schema: /not: 'not', 'if' or 'oneOf' over 'unevaluatedProperties' is not supported"},
       {R"({"not":{"unevaluatedItems":{}}})",
        "JSON schema: /not: 'not', 'if' or 'oneOf' over 'unevaluatedItems' is not supported"},
       {R"({"not":{"$recursiveRef":"#"}})",
        "JSON schema: /not: 'not', 'if' or 'oneOf' over '$recursiveRef' is not supported"},
       {R"({"properties":{"a":{"minProperties":3,"required":["x"]}}})",
        "JSON schema: /properties/a/minProperties: 3 with 1 of them required is not supported where other property "
        "names are arbitrary"},
       {R"({"patternProperties":{"a":{},"b":{},"c":{},"d":{},"e":{}}})",
        "JSON schema/patternProperties: more than 4 patterns"},
       {R"({"items":{"patternProperties":{"a":{},"b":{},"c":{},"d":{},"e":{}}}})",
        "JSON schema: /items/patternProperties: more than 4 patterns"},
       {R"({"allOf":[{"contains":{"const":1}},{"contains":{"const":2}},{"contains":{"const":3}},{"contains":{"const":4}},{"contains":{"const":5}}]})",
        "JSON schema: /contains: more than 4 such requirements on one list are not supported"},
       {R"({"items":{"contains":{"const":1},"minContains":63,"maxItems":63}})",
        "JSON schema: /items/contains: too many states with the bounds of the list"},
       {R"({"type":"object","not":{"additionalProperties":{"type":"null"}},"minProperties":3})",
        "JSON schema: /minProperties: 3 with 0 of them required is not supported where other property names are "
        "arbitrary"},
       {R"({"type":"object","minProperties":1,"allOf":[{"not":{"patternProperties":{"^a":{"type":"null"}}}},{"not":{"patternProperties":{"b$":{"type":"string"}}}}]})",
        "JSON schema: /allOf/1/not: 'not' over its properties: several conditions on the same keys are not supported"}},
      ErrorKind::unsupported);
}

TEST(SchemaMessages, StrictNamesWhatIsWeakened) {
  const char* kTags =
      R"(,"properties":{"t":{"type":"array","items":{"type":"string"},"uniqueItems":true},"f":{"type":"string","format":"iri"}}})";
  const std::string why = "/properties/t/uniqueItems is not enforced: the items have too many possible values to track";
  const std::string end = "; strict mode requires exact enforcement: change the schema or omit strict";
  const TextMatcher strict(schema_of(std::string(R"({"x-millrace-strict":true)") + kTags));
  const TextMatcher named(schema_of(std::string(R"({"x-millrace-strict":"tool 'f'")") + kTags));
  const TextMatcher not_strict(schema_of(std::string(R"({"x-millrace-strict":false)") + kTags));
  EXPECT_EQ(strict.error.message, "JSON schema: " + why + end);
  EXPECT_EQ(strict.error.kind, ErrorKind::unsupported);
  EXPECT_EQ(named.error.message, "JSON schema: tool 'f': " + why + end);
  ASSERT_TRUE(not_strict.ok());
  EXPECT_EQ(not_strict.notes.weakened, (std::vector<std::string>{why, "/properties/f/format 'iri' is not enforced"}));
  const TextMatcher kept(schema_of(R"({"x-millrace-strict":true,"type":"string","format":"colour"})"));
  EXPECT_TRUE(kept.ok()) << kept.error.message;
  EXPECT_EQ(kept.notes.ignored,
            std::vector<std::string>{
                "/format 'colour' is not a JSON Schema format and is ignored, as the standard specifies"});
}

TEST(SchemaMessages, UnknownKeywordsAreIgnoredAndListed) {
  const TextMatcher one(schema_of(
      R"({"items":{"x-a":1,"maxlength":2},"title":"","description":"","default":1,"examples":[],"$comment":"","readOnly":true,"writeOnly":true,
      "deprecated":true,"contentEncoding":"","contentMediaType":"","contentSchema":{},"example":1,"$vocabulary":{},"$recursiveAnchor":true,"type":"array"})"));
  ASSERT_TRUE(one.ok()) << one.error.message;
  EXPECT_EQ(one.notes.ignored,
            (std::vector<std::string>{
                "/items/x-a is not a JSON Schema keyword and is ignored, as the standard specifies",
                "/items/maxlength is not a JSON Schema keyword and is ignored, as the standard specifies"}));
  EXPECT_TRUE(one.notes.weakened.empty());
  GrammarNotes notes;
  for (int i = 0; i < 60; ++i) notes.weaken(fmt::format("note {}", i / 2 * 2)), notes.ignore(fmt::format("{}", i));
  EXPECT_EQ(notes.weakened.size(), 30u);
  EXPECT_EQ(notes.ignored.size(), 50u);
  notes.weaken(std::string(400, 'x'));
  EXPECT_EQ(notes.weakened.back(), std::string(400, 'x'));
  notes.weaken(std::string(401, 'y'));
  EXPECT_EQ(notes.weakened.back(), std::string(400, 'y') + "...");
  notes.weaken(std::string(398, 'z') + "\xE2\x82\xAC");
  EXPECT_EQ(notes.weakened.back(), std::string(398, 'z') + "...");
}

// Accepted at the limit, rejected above it.
void expect_limit(const std::function<std::string(int)>& schema, int last, const std::string& message) {
  const TextMatcher in(schema_of(schema(last))), out(schema_of(schema(last + 1)));
  EXPECT_TRUE(in.ok()) << in.error.message;
  ASSERT_FALSE(out.ok()) << message;
  EXPECT_EQ(out.error.message, message);
  EXPECT_EQ(out.error.kind, ErrorKind::unsupported);
}

std::string several(int n, const std::function<std::string(int)>& one, const char* between = ",") {
  std::string out;
  for (int i = 0; i < n; ++i) out += (i ? between : "") + one(i);
  return out;
}

TEST(SchemaMessages, SizesAtTheirLimits) {
  const auto nested = [](int n) {
    return several(
               n, [](int) { return R"({"items":)"; }, "") +
           "true" + std::string(static_cast<size_t>(n), '}');
  };
  expect_limit(nested, 200, "JSON schema: nested more than 200 deep");
  const auto wide = [](int n) {
    return R"({"anyOf":[)" + several(n, [](int i) { return fmt::format(R"({{"const":{}}})", i); }) + "]}";
  };
  expect_limit(wide, 256, "JSON schema: : its combinations produce more than 256 alternatives");
  const auto front = [](int n) {
    return R"({"type":"array","prefixItems":[)" + several(n, [](int) { return "{}"; }) + "]}";
  };
  EXPECT_TRUE(TextMatcher(schema_of(front(390))).ok());
  EXPECT_EQ(TextMatcher(schema_of(front(1001))).error.message, "JSON schema: : more than 1000 prefix items");
  const auto counted = [](int n) {
    return fmt::format(R"({{"type":"array","contains":{{"const":1}},"minContains":2,"minItems":{}}})", n);
  };
  expect_limit(counted, 1332, "JSON schema: /contains: too many states with the bounds of the list");
  const auto bounded = [](int n) {
    return fmt::format(R"({{"type":"array","contains":{{"const":1}},"maxContains":1,"maxItems":{}}})", n);
  };
  expect_limit(bounded, 1999, "JSON schema: /contains: too many states with the bounds of the list");
  const auto properties = [](int n, const std::string& bounds) {
    return R"({"type":"object","additionalProperties":false,"properties":{)" +
           several(n, [](int i) { return fmt::format(R"("p{}":{{}})", i); }) + "}," + bounds + "}";
  };
  const auto all = [&](int n) { return properties(n, fmt::format(R"("minProperties":{},"maxProperties":{})", n, n)); };
  expect_limit(all, 58, "JSON schema: the order of members in a list or an object takes more than 100000 transitions");
  const auto two = [&](int n) { return TextMatcher(schema_of(properties(n, R"("minProperties":2)"))).error.message; };
  EXPECT_EQ(two(1364), "JSON schema: the order of members in a list or an object takes more than 100000 transitions");
  EXPECT_EQ(two(1365), "JSON schema: : bounds on the number of its 1365 properties take too many states");
}

}  // namespace
}  // namespace millrace::testing
