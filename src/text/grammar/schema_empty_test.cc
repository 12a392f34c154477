// Which schemas of a oneOf are known to exclude each other: then neither has to be negated.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

// Whether {"oneOf": [a, b]} is compiled without negating a and b.
bool known_apart(const std::string& a, const std::string& b, const std::string& others = "") {
  SchemaDocument document;
  EXPECT_TRUE(document.load(fmt::format(R"({{"oneOf":[{},{}]{}}})", a, b, others), 200).ok()) << a << b;
  GrammarSpec spec;
  const GrammarLimits limits;
  GrammarNotes notes;
  SchemaCompiler compiler(spec, document, limits, notes, SchemaFlattener::OneOf::exact);
  compiler.compile().ok();  // a negation may be unsupported
  return !compiler.turned();
}

struct Pair {
  const char *a, *b;
  bool apart;
};

void expect_pairs(const std::vector<Pair>& table) {
  for (const auto& [a, b, apart] : table) {
    EXPECT_EQ(known_apart(a, b), apart) << a << " and " << b;
    EXPECT_EQ(known_apart(b, a), apart) << b << " and " << a;
  }
}

TEST(SchemaEmpty, Scalars) {
  expect_pairs({{R"({"type":"null"})", R"({"type":"boolean"})", true},
                {R"({"type":"null"})", R"({"type":["string","null"]})", false},
                {R"({"type":"boolean"})", R"({"type":"boolean"})", false},
                {R"({"const":1})", R"({"const":2})", true},
                {R"({"const":1})", R"({"enum":[2,1]})", false},
                {R"({"enum":["a","b"]})", R"({"pattern":"c"})", true},
                {R"({"enum":["a","c"]})", R"({"pattern":"c"})", false},
                {R"({"type":"integer","minimum":3})", R"({"maximum":2})", true},
                {R"({"type":"integer","minimum":3})", R"({"maximum":3})", false},
                {R"({"type":"number","minimum":3})", R"({"type":"number","exclusiveMaximum":3})", true},
                {R"({"type":"number","multipleOf":2})", R"({"type":"integer","minimum":3,"maximum":3})", true},
                {R"({"type":"number","multipleOf":3})", R"({"type":"integer","minimum":3,"maximum":3})", false},
                {R"({"type":"number"})", R"({"type":"integer"})", false},
                {R"({"type":"string","maxLength":1})", R"({"type":"string","minLength":2})", true},
                {R"({"type":"string","maxLength":2})", R"({"type":"string","minLength":2})", false},
                {R"({"type":"string","pattern":"^a"})", R"({"type":"string","pattern":"^b"})", true},
                {R"({"type":"string","pattern":"^a"})", R"({"type":"string","pattern":"b$"})", false},
                {R"({"type":"string","pattern":"^a$"})", R"({"type":"string","minLength":2})", true},
                {R"({"type":"string","pattern":"^a$","maxLength":2})", R"({"type":"string","minLength":3})", true}});
}

TEST(SchemaEmpty, Lists) {
  expect_pairs(
      {{R"({"type":"array","minItems":3})", R"({"type":"array","maxItems":2})", true},
       {R"({"type":"array","minItems":3})", R"({"type":"array","maxItems":3})", false},
       {R"({"type":"array","minItems":1,"items":{"type":"null"}})", R"({"type":"array","items":{"type":"string"}})",
        true},
       {R"({"type":"array","minItems":0,"items":{"type":"null"}})", R"({"type":"array","items":{"type":"string"}})",
        false},
       {R"({"type":"array","minItems":1,"items":{"type":"null"}})", R"({"type":"array","items":true})", false},
       {R"({"type":"array","minItems":1,"prefixItems":[{"type":"null"}]})",
        R"({"type":"array","items":{"type":"string"}})", true},
       {R"({"type":"array","prefixItems":[{"type":"null"}]})", R"({"type":"array","items":{"type":"string"}})", false},
       {R"({"type":"array","minItems":2,"prefixItems":[true,{"type":"null"}]})",
        R"({"type":"array","items":{"type":"string"}})", true},
       {R"({"type":"array","minItems":1,"prefixItems":[true,{"type":"null"}]})",
        R"({"type":"array","items":{"type":"string"}})", false},
       {R"({"type":"array","minItems":2,"prefixItems":[true],"items":{"type":"null"}})",
        R"({"type":"array","items":{"type":"string"}})", true},
       {R"({"type":"array","minItems":1,"prefixItems":[true],"items":{"type":"null"}})",
        R"({"type":"array","items":{"type":"string"}})", false},
       {R"({"type":"array","minItems":1})", R"({"type":"array"})", false}});
}

TEST(SchemaEmpty, Objects) {
  const char *number = R"({"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}})",
             *text = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  expect_pairs(
      {{R"({"type":"object","minProperties":3})", R"({"type":"object","maxProperties":2})", true},
       {R"({"type":"object","minProperties":3})", R"({"type":"object","maxProperties":3})", false},
       {R"({"type":"object","required":["a","b"]})", R"({"type":"object","maxProperties":1})", true},
       {R"({"type":"object","required":["a"]})", R"({"type":"object","maxProperties":1})", false},
       {number, text, true},
       {number, R"({"type":"object","properties":{"a":{"minimum":2}}})", false},
       {number, R"({"type":"object","properties":{"b":{"type":"string"}}})", false},
       {number, R"({"type":"object","additionalProperties":{"type":"string"}})", true},
       {number, R"({"type":"object","patternProperties":{"^a":{"type":"string"}}})", true},
       {R"({"type":"object","properties":{"a":{"type":"integer"}}})", text, false},
       {R"({"type":"object","required":["a"]})", R"({"type":"object","minProperties":1})", false},
       {R"({"type":"object","required":["a"]})", R"({"type":"object","propertyNames":{"pattern":"^b"}})", true},
       {R"({"type":"object","required":["a"]})", R"({"type":"object","propertyNames":{"pattern":"^a"}})", false}});
}

// A pattern that is no regex tells nothing; the error is reported where the schema is compiled.
TEST(SchemaEmpty, WhatCannotBeCompiledIsNotKnown) {
  expect_pairs(
      {{R"({"type":"object","required":["a"]})", R"({"type":"object","patternProperties":{"(":true}})", false},
       {R"({"type":"object","required":["a"]})", R"({"type":"object","propertyNames":{"pattern":"("}})", false},
       {R"({"enum":["a"]})", R"({"pattern":"("})", false},
       {R"({"type":"string","minLength":1})", R"({"type":"string","pattern":"("})", false}});
}

TEST(SchemaEmpty, EachTypeHasToBeEmpty) {
  expect_pairs({{R"({"type":["string","array"],"maxLength":1,"maxItems":1})",
                 R"({"type":["string","array"],"minLength":2,"minItems":2})", true},
                {R"({"type":["string","array"],"maxLength":1,"maxItems":1})",
                 R"({"type":["string","array"],"minLength":1,"minItems":2})", false},
                {R"({"type":["string","array"],"maxLength":1,"maxItems":1})",
                 R"({"type":["string","array"],"minLength":2,"minItems":1})", false},
                {R"({"type":["integer","object"],"maximum":1,"maxProperties":1})",
                 R"({"type":["integer","object"],"minimum":2,"minProperties":2})", true},
                {R"({"type":["integer","object"],"maximum":1,"maxProperties":1})",
                 R"({"type":["integer","object"],"minimum":2,"minProperties":1})", false},
                {R"({"type":["integer","object"],"maximum":1,"maxProperties":1})",
                 R"({"type":["integer","object"],"minimum":1,"minProperties":2})", false}});
}

TEST(SchemaEmpty, LooksThreeLevelsDeep) {
  const auto objects = [](int levels, const std::string& leaf) {
    std::string out = leaf;
    while (levels-- > 0) out = R"({"type":"object","required":["a"],"properties":{"a":)" + out + "}}";
    return out;
  };
  const auto lists = [](int levels, const std::string& leaf) {
    std::string out = leaf;
    while (levels-- > 0) out = R"({"type":"array","minItems":1,"items":)" + out + "}";
    return out;
  };
  const std::string a = R"({"type":"string"})", b = R"({"type":"null"})";
  for (int levels = 0; levels <= 5; ++levels) {
    EXPECT_EQ(known_apart(objects(levels, a), objects(levels, b)), levels <= 3) << levels;
    EXPECT_EQ(known_apart(lists(levels, a), lists(levels, b)), levels <= 3) << levels;
  }
  const char* recursive =
      R"(,"$defs":{"a":{"type":"object","required":["n"],"properties":{"n":{"$ref":"#/$defs/a"}}},"b":{"type":"object","required":["n"],"properties":{"n":{"$ref":"#/$defs/b"}}}})";
  EXPECT_FALSE(known_apart(R"({"$ref":"#/$defs/a"})", R"({"$ref":"#/$defs/b"})", recursive));
}

}  // namespace
}  // namespace millrace
