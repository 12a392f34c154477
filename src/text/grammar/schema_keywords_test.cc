// Keywords in combination, and negated by `not`, `if` and `oneOf`: all small values against a plain validator.
#include "text/grammar/schema_values_test.h"

namespace millrace::testing {
namespace {

void expect_all(const std::vector<const char*>& schemas) {
  for (const char* schema : schemas) expect_as_oracle(schema);
}

// Single keywords, one of each type; each is tested directly, negated, and as a condition.
constexpr const char* kSingle[] = {
    R"({"type":"integer"})",
    R"({"type":"number"})",
    R"({"type":["string","null"]})",
    R"({"type":["integer","array"]})",
    R"({"type":["number","boolean","object"]})",
    R"({"const":1})",
    R"({"const":"a"})",
    R"({"const":null})",
    R"({"const":[1,2]})",
    R"({"const":[]})",
    R"({"const":{}})",
    R"({"const":{"a":1,"b":"a"}})",
    R"({"const":{"a":{"a":1}}})",
    R"({"enum":[1,2.5,"ab",null,true]})",
    R"({"enum":[[1],{"a":1},3]})",
    R"({"enum":[[],{}]})",
    R"({"enum":[true,false]})",
    R"({"minimum":2})",
    R"({"maximum":2})",
    R"({"exclusiveMinimum":2})",
    R"({"exclusiveMaximum":2})",
    R"({"minimum":-0.5})",
    R"({"multipleOf":3})",
    R"({"multipleOf":0.5})",
    R"({"minLength":1})",
    R"({"minLength":3})",
    R"({"maxLength":0})",
    R"({"maxLength":2})",
    R"({"minLength":0})",
    R"({"pattern":"^a"})",
    R"({"pattern":"b$"})",
    R"({"minItems":1})",
    R"({"minItems":3})",
    R"({"maxItems":0})",
    R"({"maxItems":2})",
    R"({"minItems":0})",
    R"({"items":{"type":"integer"}})",
    R"({"items":false})",
    R"({"items":true})",
    R"({"prefixItems":[{"const":1}]})",
    R"({"prefixItems":[{"const":1},{"type":"string"}]})",
    R"({"prefixItems":[true,{"const":"a"},{"const":1}]})",
    R"({"prefixItems":[{"const":1}],"items":{"type":"string"}})",
    R"({"prefixItems":[{"const":1},{"const":2}],"items":false})",
    R"({"contains":{"const":1}})",
    R"({"contains":{"type":"string"},"minContains":2})",
    R"({"contains":{"const":1},"maxContains":1})",
    R"({"contains":{"const":1},"minContains":0})",
    R"({"contains":{"const":1},"minContains":0,"maxContains":1})",
    R"({"contains":{"const":1},"minContains":2,"maxContains":2})",
    R"({"contains":{"const":1},"minContains":1})",
    R"({"required":["a"]})",
    R"({"required":["a","b"]})",
    R"({"required":[]})",
    R"({"properties":{"a":{"const":1}}})",
    R"({"properties":{"a":{"const":1},"b":false}})",
    R"({"properties":{"a":{"type":"integer"},"b":{"type":"string"}}})",
    R"({"properties":{"a":true}})",
    R"({"additionalProperties":false})",
    R"({"additionalProperties":{"type":"integer"}})",
    R"({"properties":{"a":{}},"additionalProperties":false})",
    R"({"properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
    R"({"patternProperties":{"^a":{"type":"integer"}}})",
    R"({"patternProperties":{"^a":false}})",
    R"({"patternProperties":{"^a":{"type":"integer"},"b$":true}})",
    R"({"patternProperties":{"^a":{}},"additionalProperties":{"type":"string"}})",
    R"({"properties":{"b":{}},"patternProperties":{"^a":{}},"additionalProperties":false})",
    R"({"propertyNames":{"pattern":"^a"}})",
    R"({"propertyNames":{"maxLength":1}})",
    R"({"propertyNames":{"enum":["a","b"]}})",
    R"({"propertyNames":{"const":"a"}})",
    R"({"propertyNames":false})",
    R"({"propertyNames":true})",
    R"({"propertyNames":{"type":"string"}})",
    R"({"propertyNames":{"not":{"const":"a"}}})",
    R"({"minProperties":1})",
    R"({"maxProperties":1})",
    R"({"maxProperties":0})",
    R"({"minProperties":0})",
    R"({"dependentRequired":{"a":["b"]}})",
    R"({"dependentRequired":{"a":["b","c"],"b":["c"]}})",
    R"({"dependentSchemas":{"a":{"required":["b"]}}})",
    R"({"dependentSchemas":{"a":false}})",
    R"({"dependencies":{"a":["b"],"b":{"maxProperties":2}}})",
    R"({"dependentRequired":{"a":[]}})"};

TEST(SchemaKeywords, Single) { expect_all({std::begin(kSingle), std::end(kSingle)}); }

TEST(SchemaKeywords, Negated) {
  for (const std::string one : kSingle) {
    const SchemaJson schema = {{"not", SchemaJson::parse(one)}};
    compare_with_oracle(schema, values_for(schema));
    const SchemaJson twice = {{"not", schema}};
    compare_with_oracle(twice, values_for(twice));
  }
}

// What is derived from the schema leaves no notes of its own.
TEST(SchemaKeywords, NegatedWithoutNotes) {
  for (const std::string one : kSingle) {
    const TextMatcher plain(schema_of(one));
    ASSERT_TRUE(plain.ok()) << one;
    for (const std::string& schema : {one, "{\"not\":" + one + "}", R"({"type":"string","not":)" + one + "}"}) {
      const TextMatcher matcher(schema_of(schema));
      EXPECT_EQ(matcher.notes.ignored, std::vector<std::string>()) << schema;
      EXPECT_EQ(matcher.notes.weakened, std::vector<std::string>()) << schema;
    }
  }
}

TEST(SchemaKeywords, AsConditions) {
  int refused = 0;
  for (const std::string one : kSingle) {
    const SchemaJson schema = {{"if", SchemaJson::parse(one)},
                               {"then", {{"type", {"integer", "array", "object"}}}},
                               {"else", {{"minLength", 2}, {"minimum", 0}, {"maxItems", 1}, {"maxProperties", 1}}}};
    refused += compare_with_oracle(schema, values_for(schema)) != Kept::exactly;
  }
  EXPECT_LE(refused, 2) << "over counts of properties";
}

TEST(SchemaKeywords, InPairs) {
  constexpr size_t kCount = std::size(kSingle);
  for (size_t i = 0; i < kCount; ++i)
    for (const size_t by : {7u, 20u, 33u}) {
      const SchemaJson a = SchemaJson::parse(kSingle[i]), b = SchemaJson::parse(kSingle[(i + by) % kCount]);
      const SchemaJson schema = {{i % 3 ? "oneOf" : "allOf", {a, b}}};
      compare_with_oracle(schema, values_for(schema));
    }
}

TEST(SchemaKeywords, NegatedCombinations) {
  expect_all(
      {R"({"not":{"allOf":[{"type":"integer"},{"minimum":3}]}})",
       R"({"not":{"anyOf":[{"type":"integer"},{"type":"string"}]}})",
       R"({"not":{"oneOf":[{"minimum":3},{"type":"integer"}]}})",
       R"({"not":{"oneOf":[{"minimum":3},{"type":"integer"},{"maximum":0}]}})",
       R"({"not":{"oneOf":[{"const":1},{"const":2}]}})", R"({"not":{"not":{"minimum":3}}})",
       R"({"not":{"not":{"not":{"required":["a"]}}}})",
       R"({"not":{"if":{"type":"integer"},"then":{"minimum":3},"else":{"type":"string"}}})",
       R"({"not":{"if":{"type":"integer"},"then":{"minimum":3}}})",
       R"({"not":{"if":{"type":"integer"},"else":{"type":"string"}}})",
       R"({"not":{"$ref":"#/$defs/x"},"$defs":{"x":{"type":"integer"}}})",
       R"({"not":{"$ref":"#/$defs/x","minLength":2},"$defs":{"x":{"type":"string"}}})",
       R"({"if":{"$ref":"#/$defs/x"},"then":{"const":"a"},"$defs":{"x":{"not":{"type":"integer"}}}})",
       R"({"$schema":"http://json-schema.org/draft-07/schema#","not":{"$ref":"#/definitions/x","minLength":2},"definitions":{"x":{"type":"string"}}})",
       R"({"not":false})", R"({"oneOf":[{"minimum":1},{"maximum":3},{"multipleOf":2}]})",
       R"({"oneOf":[{"required":["a"]},{"required":["b"]},{"required":["c"]}],"type":"object"})",
       R"({"anyOf":[{"required":["a"]},{"properties":{"b":{"const":"a"}}}],"not":{"required":["c"]}})"});
}

TEST(SchemaKeywords, Unsatisfiable) {
  for (const char* schema :
       {R"({"not":true,"type":"null"})", R"({"not":{}})", R"({"not":{"if":{"type":"integer"}}})",
        R"({"allOf":[{"const":1},{"const":2}]})", R"({"type":"integer","minimum":0.2,"maximum":0.8})",
        R"({"type":"string","minLength":2,"maxLength":1})", R"({"type":"array","minItems":2,"maxItems":1})",
        R"({"type":"array","minItems":1,"items":false})",
        R"({"type":"object","required":["a"],"properties":{"a":false}})",
        R"({"type":"object","required":["a","b"],"maxProperties":1})",
        R"({"type":"object","required":["a"],"propertyNames":{"const":"b"}})", R"({"enum":[],"type":"string"})",
        R"({"const":1,"type":"string"})", R"({"oneOf":[{"type":"integer"},{"type":"integer"}]})",
        R"({"type":"string","pattern":"^a","not":{"pattern":"a"}})",
        R"({"type":"boolean","not":{"enum":[true,false]}})"}) {
    const SchemaJson parsed = SchemaJson::parse(schema);
    EXPECT_EQ(compare_with_oracle(parsed, values_for(parsed)), Kept::nothing) << schema;
  }
}

TEST(SchemaKeywords, AllOfABoolean) {
  expect_all({"true", R"({"allOf":[true,{"type":"string"}]})", R"({"anyOf":[false,{"type":"string"}]})",
              R"({"oneOf":[true,{"type":"string"}]})", R"({"anyOf":[true,{"const":1}]})",
              R"({"if":true,"then":{"type":"integer"},"else":{"type":"string"}})",
              R"({"if":false,"then":{"type":"integer"},"else":{"type":"string"}})"});
}

TEST(SchemaKeywords, CountsOfProperties) {
  for (const char* bounds :
       {R"("minProperties":1)", R"("minProperties":2)", R"("maxProperties":1)", R"("maxProperties":2)",
        R"("minProperties":2,"maxProperties":2)", R"("minProperties":1,"maxProperties":2)", R"("maxProperties":0)",
        R"("minProperties":3)", R"("minProperties":3,"maxProperties":2)"})
    for (const char* required : {"", R"(,"required":["a"])", R"(,"required":["b","c"])", R"(,"required":["x1"])"})
      for (const char* others :
           {R"(,"additionalProperties":false)", "", R"(,"additionalProperties":{"type":"integer"})"}) {
        const SchemaJson schema =
            SchemaJson::parse(std::string(R"({"type":"object","properties":{"a":{},"b":{"type":"integer"},"c":{}},)") +
                              bounds + required + others + "}");
        compare_with_oracle(schema, values_for(schema));
      }
}

TEST(SchemaKeywords, CountsOfItems) {
  for (const char* front : {"", R"(,"prefixItems":[{"const":1}])",
                            R"(,"prefixItems":[{"type":"integer"},{"type":["string","integer"]},true])"})
    for (const char* items : {"", R"(,"items":{"type":"integer"})", R"(,"items":false)"})
      for (int min = 0; min < 6; ++min)
        for (int max = std::max(0, min - 1); max < 7; ++max) {
          std::string bounds = R"("type":"array","minItems":)" + std::to_string(min);
          if (max < 6) bounds += R"(,"maxItems":)" + std::to_string(max);
          const SchemaJson schema = SchemaJson::parse("{" + bounds + front + items + "}");
          compare_with_oracle(schema, values_for(schema));
        }
}

TEST(SchemaKeywords, ItemConstraints) {
  for (const char* wanted :
       {R"("contains":{"const":1})", R"("contains":{"const":1},"minContains":2)",
        R"("contains":{"type":"integer"},"maxContains":2)",
        R"("contains":{"const":"a"},"minContains":0,"maxContains":1)",
        R"("allOf":[{"contains":{"const":1}},{"contains":{"const":2}}])",
        R"("allOf":[{"contains":{"const":1},"maxContains":1},{"contains":{"const":"a"}}])",
        R"("contains":{"const":1},"minContains":3,"maxContains":2)", R"("not":{"items":{"const":1}})",
        R"("not":{"prefixItems":[{"const":1}],"items":{"const":2}})"})
    for (const char* beside :
         {"", R"(,"minItems":2)", R"(,"maxItems":2)", R"(,"minItems":3,"maxItems":3)",
          R"(,"prefixItems":[{"const":1}])", R"(,"prefixItems":[{"const":2},{"const":1}],"items":{"type":"integer"})",
          R"(,"items":{"enum":[1,2]})"}) {
      const SchemaJson schema = SchemaJson::parse(std::string(R"({"type":"array",)") + wanted + beside + "}");
      compare_with_oracle(schema, values_for(schema));
    }
}

TEST(SchemaKeywords, UniqueItems) {
  expect_all(
      {R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,"a",null]}})",
       R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,"a"]},"minItems":2})",
       R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,"a"]},"minItems":1,"maxItems":2})",
       R"({"type":"array","uniqueItems":true,"items":{"type":["null","boolean"]}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":3}})",
       R"({"type":"array","uniqueItems":true,"items":{"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":3,"not":{"const":2}}})",
       R"({"type":"array","uniqueItems":true,"items":{"anyOf":[{"const":1},{"enum":[1,"a"]},{"type":"null"}]},"maxItems":3})",
       R"({"type":"array","uniqueItems":true,"maxItems":1})",
       R"({"type":"array","uniqueItems":false,"items":{"type":"integer"}})",
       R"({"type":"array","uniqueItems":true,"items":{"const":1}})"});
}

TEST(SchemaKeywords, Unevaluated) {
  expect_all(
      {R"({"type":"object","properties":{"a":{}},"unevaluatedProperties":false})",
       R"({"type":"object","allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":{"type":"string"}})",
       R"({"type":"object","patternProperties":{"^a":{}},"unevaluatedProperties":false})",
       R"({"type":"object","allOf":[{"patternProperties":{"^a":{"type":"integer"}}}],"properties":{"b":{}},"unevaluatedProperties":false})",
       R"({"type":"object","additionalProperties":{"type":"integer"},"unevaluatedProperties":false})",
       R"({"type":"object","allOf":[{"additionalProperties":true}],"unevaluatedProperties":false})",
       R"({"type":"object","anyOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"integer"}},"required":["b"]}],"unevaluatedProperties":false})",
       R"({"type":"object","oneOf":[{"properties":{"a":{"const":1}},"required":["a"]},{"properties":{"b":{"const":1}},"required":["b"]}],"unevaluatedProperties":false})",
       R"({"type":"object","if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"properties":{"b":{}}},"else":{"properties":{"c":{}}},"unevaluatedProperties":false})",
       R"({"type":"object","if":{"required":["a"],"properties":{"a":{}}},"unevaluatedProperties":false})",
       R"({"type":"object","$ref":"#/$defs/x","unevaluatedProperties":false,"$defs":{"x":{"properties":{"a":{}}}}})",
       R"({"type":"object","allOf":[{"unevaluatedProperties":false,"properties":{"a":{}}}],"properties":{"b":{}}})",
       R"({"type":"object","allOf":[{"unevaluatedProperties":true}],"unevaluatedProperties":false})",
       R"({"type":"object","dependentSchemas":{"a":{"properties":{"a":{},"b":{}}}},"unevaluatedProperties":false})",
       R"({"type":"object","not":{"properties":{"a":{"const":1}}},"unevaluatedProperties":{"type":["integer","string"]}})",
       R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":false})",
       R"({"type":"array","allOf":[{"prefixItems":[true,true]}],"prefixItems":[{"const":1}],"unevaluatedItems":{"type":"string"}})",
       R"({"type":"array","items":{"type":"integer"},"unevaluatedItems":false})",
       R"({"type":"array","contains":{"const":1},"unevaluatedItems":{"type":"string"}})",
       R"({"type":"array","allOf":[{"items":{"type":"integer"}}],"unevaluatedItems":false})",
       R"({"type":"array","anyOf":[{"prefixItems":[{"const":1}]},{"prefixItems":[{"type":"integer"},{"const":2}]}],"unevaluatedItems":false})",
       R"({"type":"array","allOf":[{"unevaluatedItems":true}],"unevaluatedItems":false})",
       R"({"type":"array","prefixItems":[{"const":1}],"contains":{"const":"a"},"unevaluatedItems":false})",
       R"({"type":"array","$ref":"#/$defs/x","unevaluatedItems":{"const":2},"$defs":{"x":{"prefixItems":[{"const":1}]}}})"});
}

TEST(SchemaKeywords, ConstantsWithOtherKeywords) {
  for (const char* beside : {R"("type":"object")",
                             R"("required":["a"])",
                             R"("properties":{"a":{"const":1}})",
                             R"("additionalProperties":{"type":"integer"})",
                             R"("propertyNames":{"maxLength":1})",
                             R"("minProperties":2)",
                             R"("maxProperties":1)",
                             R"("items":{"type":"integer"})",
                             R"("minItems":2)",
                             R"("maxItems":1)",
                             R"("contains":{"const":2})",
                             R"("minimum":2)",
                             R"("exclusiveMaximum":2)",
                             R"("maximum":1,"minimum":1)",
                             R"("multipleOf":2)",
                             R"("multipleOf":0.5)",
                             R"("not":{"multipleOf":2})",
                             R"("pattern":"^a")",
                             R"("maxLength":1)",
                             R"("minLength":2)",
                             R"("not":{"const":1})",
                             R"("not":{"enum":["a",[1]]})",
                             R"("type":["integer","string","null"])",
                             R"("exclusiveMinimum":1)",
                             R"("not":{"patternProperties":{"^a":{"const":1}}})",
                             R"("not":{"contains":{"const":1}})"})
    expect_as_oracle(
        std::string(
            R"({"enum":[1,2,2.5,-1,"a","ab","",null,true,[],[1],[1,2],[1,1],["a"],{},{"a":1},{"a":"a","b":1},{"ab":2},{"a":1,"b":2}],)") +
        beside + "}");
}

}  // namespace
}  // namespace millrace::testing
