// JSON Schema by keyword: texts that must and must not be accepted, and schemas that must be rejected.
#include "text/grammar/schema.h"

#include "text/grammar/grammar_test.h"
#include "text/grammar/schema_numbers.h"

namespace millrace {
namespace {

using testing::schema_of;
using testing::TextMatcher;
using Texts = std::vector<std::string>;

void expect_schema(const std::string& schema, const Texts& in, const Texts& out) {
  TextMatcher matcher(schema_of(schema));
  ASSERT_TRUE(matcher.ok()) << schema << ": " << matcher.error.message;
  for (const auto& text : in) EXPECT_TRUE(matcher.accepts(text)) << schema << " should accept " << text;
  for (const auto& text : out) EXPECT_FALSE(matcher.accepts(text)) << schema << " should not accept " << text;
}

std::string refusal(const std::string& schema) {
  const TextMatcher matcher(schema_of(schema));
  return matcher.ok() ? "" : matcher.error.message;
}

TEST(Schema, AnyValueIsAnyJson) {
  expect_schema("true",
                {"null", "-0.5e+10", "\"\\ud83d\\ude00 \\u00e9 \xC3\xA9\"", "[]", "{ }",
                 "{\n  \"a\": [\n    1,\n    {}\n  ]\n}", "[1, 2]"},
                {"", "nul", "01", "1.", ".5", "\"\\ud83d\"", "\"\\ude00\"", "\"\n\"", "[1,]", "{\"a\"}", "{a:1}",
                 "\"\xC3\"", "1e400", " 1"});
}

TEST(Schema, TypesEnumsAndConstants) {
  expect_schema(R"({"type":["integer","null"]})", {"1", "-0", "null"}, {"1.5", "true", "\"1\""});
  expect_schema(R"({"enum":["a\"b","\n",1,{"k":[true]}]})",
                {"\"a\\\"b\"", "\"\\n\"", "1", "{\"k\":[true]}", "{\"k\": [true]}"}, {"\"a\"", "2", "{}"});
  expect_schema(R"({"enum":[1,"x",null,2.5],"type":["number","null"]})", {"1", "null", "2.5"}, {"\"x\""});
  expect_schema(R"({"enum":["aa","b","ccc"],"minLength":2,"pattern":"c"})", {"\"ccc\""}, {"\"aa\"", "\"b\""});
  expect_schema(R"({"const":2.0})", {"2.0", "2"}, {"2.5"});
  EXPECT_NE(refusal(R"({"enum":[1],"type":"string"})").find("no text satisfies"), std::string::npos);
}

TEST(Schema, LengthsCountCharactersNotBytes) {
  expect_schema(R"({"type":"string","minLength":2,"maxLength":3})",
                {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", "\"\\n\\u00e9\\ud83d\\ude00\""},
                {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""});
  expect_schema(R"({"type":"string","maxLength":0})", {"\"\""}, {"\"a\"", "\"\\n\""});
  expect_schema(R"({"type":"string","minLength":3,"maxLength":2000000000})", {"\"abc\""}, {"\"ab\""});
  EXPECT_FALSE(TextMatcher(schema_of(R"({"type":"string","minLength":3,"maxLength":2})")).ok());
}

TEST(Schema, PatternsAndLengthsTogether) {
  expect_schema(R"({"type":"string","pattern":"^[a-z]*$","minLength":2,"maxLength":4})", {"\"ab\"", "\"abcd\""},
                {"\"a\"", "\"abcde\"", "\"AB\""});
  expect_schema(R"({"type":"string","pattern":"b","allOf":[{"pattern":"a"}]})", {"\"ab\"", "\"xbya\""},
                {"\"a\"", "\"b\""});
  expect_schema(R"({"type":"string","format":"date"})", {"\"2024-02-29\"", "\"2023-12-31\""},
                {"\"2023-02-29\"", "\"2023-04-31\"", "\"1900-02-29\"", "\"2023-1-1\""});
  expect_schema(R"({"type":"string","format":"ipv6"})",
                {"\"::\"", "\"2001:db8::1\"", "\"::ffff:1.2.3.4\"", "\"1:2:3:4:5:6:7:8\""},
                {"\":::\"", "\"1:2:3\"", "\"12345::\"", "\"::256.1.1.1\""});
  expect_schema(R"({"type":"string","format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""});
  expect_schema(R"({"type":"string","format":"uri"})", {"\"https://a.b/c?d#e\"", "\"urn:x:y\"", "\"http://[::1]:80/\""},
                {"\"//a\"", "\"a b\"", "\"http://a b\""});
}

// Compares every decimal in a range with its numeric value.
TEST(Schema, BoundsAgreeWithTheirDefinition) {
  struct Bounds {
    const char* schema;
    bool (*allows)(double);
  };
  const Bounds cases[] = {
      {R"({"type":"number","minimum":-1.25,"maximum":10.5})", [](double v) { return v >= -1.25 && v <= 10.5; }},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":12})", [](double v) { return v > 0 && v < 12; }},
      {R"({"type":"number","exclusiveMinimum":-2,"maximum":-0.5})", [](double v) { return v > -2 && v <= -0.5; }},
      {R"({"type":"number","minimum":0})", [](double v) { return v >= 0; }},
      {R"({"type":"number","exclusiveMaximum":0})", [](double v) { return v < 0; }},
      {R"({"type":"number","maximum":0})", [](double v) { return v <= 0; }},
      {R"({"type":"number","minimum":9.99,"exclusiveMaximum":100})", [](double v) { return v >= 9.99 && v < 100; }},
      {R"({"type":"number","multipleOf":0.25,"minimum":-3})",
       [](double v) { return v >= -3 && std::fmod(std::fabs(v) * 100 + 0.5, 25) < 1; }},
  };
  for (const Bounds& one : cases) {
    TextMatcher matcher(schema_of(one.schema));
    ASSERT_TRUE(matcher.ok()) << matcher.error.message;
    for (int hundredths = -12'000; hundredths <= 12'000; ++hundredths) {
      const int whole = std::abs(hundredths) / 100, part = std::abs(hundredths) % 100;
      const std::string sign = hundredths < 0 ? "-" : "", digits = std::to_string(part + 100).substr(1);
      const double value = hundredths / 100.0;
      ASSERT_EQ(matcher.accepts(sign + std::to_string(whole) + "." + digits), one.allows(value))
          << one.schema << " " << value;
      if (part == 0) {
        ASSERT_EQ(matcher.accepts(sign + std::to_string(whole)), one.allows(value)) << one.schema << " " << value;
      }
      if (part % 10 == 0) {
        ASSERT_EQ(matcher.accepts(sign + std::to_string(whole) + "." + std::to_string(part / 10)), one.allows(value))
            << one.schema << " " << value;
      }
    }
  }
  for (const auto& [schema, least, most, step] :
       {std::tuple{R"({"type":"integer","minimum":-37,"maximum":1234})", -37, 1234, 1},
        {R"({"type":"integer","exclusiveMinimum":99,"exclusiveMaximum":1001,"multipleOf":7})", 100, 1000, 7},
        {R"({"type":"integer","minimum":0.5,"maximum":9.5,"multipleOf":1.5})", 1, 9, 3}}) {
    TextMatcher matcher(schema_of(schema));
    ASSERT_TRUE(matcher.ok());
    for (int v = -2000; v <= 2000; ++v)
      ASSERT_EQ(matcher.accepts(std::to_string(v)), v >= least && v <= most && v % step == 0) << schema << " " << v;
    EXPECT_FALSE(matcher.accepts("1.5"));
  }
}

TEST(Schema, ObjectsKeepTheOrderAndTheRequired) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{}},"required":["b"],"additionalProperties":false})";
  expect_schema(schema, {R"({"b":""})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"x","c":[{}]})", "{\n  \"b\": \"x\"\n}"},
                {"{}", R"({"a":1})", R"({"b":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x","b":"x"})"});
  expect_schema(R"({"type":"object","properties":{"ab":{"type":"null"}},"additionalProperties":{"type":"integer"}})",
                {"{}", R"({"ab":null,"x":1,"a":2,"abc":3,"":4})"},
                {R"({"ab":1})", R"({"x":null})", R"({"x":1,"ab":null})"});
  expect_schema(R"({"type":"object","required":["z"]})", {R"({"z":1,"y":[]})"}, {"{}", R"({"y":1})"});
  expect_schema(
      R"({"type":"object","patternProperties":{"^n":{"type":"integer"},"s$":{"type":["integer","string"],"maxLength":1}},"additionalProperties":false})",
      {R"({"n":1,"s":"x","ns":3})"}, {R"({"ns":"x"})", R"({"x":1})", R"({"s":"xx"})"});
  expect_schema(R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"null"}})",
                {R"({"ab":null})"}, {R"({"A":null})", R"({"":null})"});
  expect_schema(R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":1,"maxProperties":2})",
                {R"({"a":1})", R"({"b":1,"c":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  expect_schema(R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c"],"maxProperties":2})",
                {R"({"c":1})", R"({"c":1,"a":2})"}, {R"({"c":1,"a":2,"b":3})", R"({"a":1,"b":2})"});
  expect_schema(
      R"({"type":"object","dependentRequired":{"a":["b"]},"properties":{"a":{},"b":{}},"additionalProperties":false})",
      {"{}", R"({"b":1})", R"({"a":1,"b":1})"}, {R"({"a":1})"});
}

TEST(Schema, ListsCountTheirItems) {
  expect_schema(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1, 2, 3]"},
                {"[]", "[1]", "[1,2,3,4]", "[1,\"2\"]"});
  expect_schema(
      R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":1,"maxItems":4})",
      {"[1]", "[1,\"a\"]", "[1,\"a\",null,null]"}, {"[]", "[\"a\"]", "[1,\"a\",1]", "[1,\"a\",null,null,null]"});
  expect_schema(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"integer"}],"additionalItems":false,"type":"array"})",
      {"[]", "[1]"}, {"[1,1]"});
  expect_schema(R"({"type":"array","items":false})", {"[]"}, {"[1]"});
  expect_schema(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
  expect_schema(R"({"type":"array","minItems":30,"maxItems":1000000})",
                {"[" + std::string("1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1") + "]"}, {"[1,1]"});
  expect_schema(R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"maxItems":2})",
                {"[]", "[\"b\",\"a\"]"}, {"[\"a\",\"a\"]", "[\"a\",\"b\",\"c\"]"});
}

TEST(Schema, CombinationsMerge) {
  expect_schema(
      R"({"allOf":[{"type":"object","properties":{"a":{"minimum":2}}},{"properties":{"a":{"type":"integer","maximum":4},"b":{}},"additionalProperties":false}],"required":["a"]})",
      {R"({"a":2})", R"({"a":4,"b":0})"}, {R"({"a":1})", R"({"a":5})", R"({"a":3,"c":1})", "{}"});
  expect_schema(R"({"anyOf":[{"type":"string","maxLength":1},{"type":"integer"}],"not":{"const":"x"}})",
                {"\"a\"", "3", "\"\""}, {"\"x\"", "\"ab\"", "null"});
  expect_schema(
      R"({"type":"object","properties":{"k":{"enum":["a","b"]},"v":{}},"required":["k"],"additionalProperties":false,
      "if":{"properties":{"k":{"const":"a"}}},"then":{"required":["v"]},"else":{"properties":{"v":false}}})",
      {R"({"k":"a","v":1})", R"({"k":"b"})"}, {R"({"k":"a"})", R"({"k":"b","v":1})"});
  TextMatcher one(schema_of(
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":1}},"required":["k"]},{"type":"object","properties":{"k":{"const":2}},"required":["k"]}]})"));
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one.notes.weakened.empty()) << one.notes.weakened[0];
  TextMatcher both(schema_of(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})"));
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(both.notes.weakened.empty()) << both.notes.weakened[0];
}

TEST(Schema, ReferencesWithinTheSchemaAndRecursion) {
  expect_schema(
      R"({"$ref":"#/$defs/list","$defs":{"list":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"null"}]}},"required":["v","next"],"additionalProperties":false}}})",
      {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
      {R"({"v":1})", R"({"v":1,"next":{}})"});
  expect_schema(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  expect_schema(
      R"({"$id":"http://x/y.json","properties":{"a":{"$ref":"z.json"},"b":{"$ref":"#name"}},"type":"object","additionalProperties":false,"$defs":{"i":{"$id":"z.json","type":"null"},"j":{"$anchor":"name","type":"integer"}}})",
      {R"({"a":null,"b":1})"}, {R"({"a":1})", R"({"b":null})"});
  EXPECT_NE(refusal(R"({"properties":{"a":{"$ref":"http://elsewhere/x.json"}}})").find("not fetched"),
            std::string::npos);
  EXPECT_NE(
      refusal(
          R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}})")
          .find("no text satisfies"),
      std::string::npos);
}

TEST(Schema, UnsupportedSchemasAreRejectedWithThePlace) {
  EXPECT_NE(refusal(R"({"properties":{"a":{"type":"object","minProperties":3}}})").find("/properties/a/minProperties"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"not":{"type":"array","uniqueItems":true}})").find("uniqueItems"), std::string::npos);
  EXPECT_NE(refusal(R"({"properties":{"s":{"type":"string","pattern":"y(?=x)z"}}})").find("/properties/s"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"type":"strin"})").find("is not a type"), std::string::npos);
  EXPECT_NE(refusal("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("3").find("must be an object"), std::string::npos);
  std::string wide = R"({"allOf":[)";
  for (int i = 0; i < 12; ++i)
    wide += std::string(i ? "," : "") + R"({"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"maxLength":)" +
            std::to_string(100 + i) + "}]}";
  EXPECT_NE(refusal(wide + "]}").find("alternatives"), std::string::npos);
  EXPECT_FALSE(refusal(std::string(3000, '[')).empty());
  std::string deep = "true";
  for (int i = 0; i < 400; ++i) deep = R"({"items":)" + deep + "}";
  EXPECT_NE(refusal(deep).find("deep"), std::string::npos);
}

TEST(Schema, NotesListIgnoredKeywords) {
  TextMatcher matcher(schema_of(R"({"type":"string","format":"colour","x-order":3,"title":"t"})"));
  ASSERT_TRUE(matcher.ok());
  ASSERT_EQ(matcher.notes.ignored.size(), 2u);
  EXPECT_NE(matcher.notes.ignored[0].find("colour"), std::string::npos);
  EXPECT_NE(matcher.notes.ignored[1].find("x-order"), std::string::npos);
}

}  // namespace
}  // namespace millrace
