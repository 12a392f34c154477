// How large the automata of typical constraints are: states, byte classes and calls of rules. A larger one costs memory
// and time at each step, and a schema that fits today must not be too large tomorrow.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

using Kind = Constraint::Kind;

struct SizedConstraint {
  Kind kind;
  std::string text;
  int32_t states, classes;
  int64_t calls;
};

int64_t calls_of(const Grammar& grammar) {
  int64_t calls = 0;
  for (int32_t state = 0; state < grammar.states(); ++state) calls += std::ssize(grammar.calls(state));
  return calls;
}

void expect_sizes(const std::vector<SizedConstraint>& table) {
  for (const SizedConstraint& one : table) {
    const auto grammar = compile_constraint(make_constraint(one.kind, one.text));
    ASSERT_TRUE(grammar.ok()) << one.text << ": " << grammar.error().message;
    EXPECT_EQ(fmt::format("{}, {}, {}", grammar->states(), grammar->classes(), calls_of(*grammar)),
              fmt::format("{}, {}, {}", one.states, one.classes, one.calls))
        << one.text;
  }
}

TEST(ConstraintSizes, Scalars) {
  expect_sizes({
      {Kind::json_schema, R"(true)", 427, 217, 10},
      {Kind::json_schema, R"({"type":"integer"})", 22, 14, 0},
      {Kind::json_schema, R"({"type":"number","minimum":-2.5,"exclusiveMaximum":100})", 88, 11, 0},
      {Kind::json_schema, R"({"type":"integer","minimum":17,"maximum":4711})", 17, 9, 0},
      {Kind::json_schema, R"({"type":"number","multipleOf":0.25})", 540, 15, 0},
      {Kind::json_schema, R"({"type":"integer","multipleOf":6,"not":{"multipleOf":4}})", 226, 14, 0},
      {Kind::json_schema, R"({"type":"number","not":{"type":"integer"}})", 62, 7, 0},
      {Kind::json_schema, R"({"type":"integer","not":{"enum":[7,42]}})", 25, 12, 0},
      {Kind::json_schema, R"({"enum":["red","green",1,2.0,null,[1,{"a":true}]]})", 179, 42, 0},
      {Kind::json_schema, R"({"type":"string","minLength":2,"maxLength":40})", 41, 214, 1},
      {Kind::json_schema, R"({"type":"string","pattern":"^[a-z]+$","maxLength":12})", 15, 5, 0},
      {Kind::json_schema, R"({"type":"string","pattern":"^[a-z]{3,5}$","minLength":3,"maxLength":5})", 8, 5, 0},
      {Kind::json_schema, R"({"type":"string","pattern":"^(?=.*[0-9])[a-z0-9]*$"})", 5, 7, 0},
      {Kind::json_schema, R"({"type":"string","not":{"enum":["a","bc"]}})", 31, 43, 0},
      {Kind::json_schema, R"({"type":"string","format":"date"})", 37, 16, 0},
      {Kind::json_schema, R"({"type":"string","format":"ipv4","not":{"pattern":"^10"}})", 34, 12, 0},
  });
}

TEST(ConstraintSizes, Lists) {
  expect_sizes({
      {Kind::json_schema, R"({"type":"array"})", 370, 217, 8},
      {Kind::json_schema, R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":100})", 169, 24, 1},
      {Kind::json_schema, R"({"type":"array","prefixItems":[{"const":1},{"type":"string"}],"items":false})", 122, 217,
       2},
      {Kind::json_schema, R"({"type":"array","prefixItems":[{"const":1}],"items":{"const":2},"minItems":3})", 109, 15,
       1},
      {Kind::json_schema, R"({"type":"array","contains":{"const":1},"minContains":2})", 517, 217, 71},
      {Kind::json_schema, R"({"type":"array","contains":{"const":1},"maxContains":2,"maxItems":5})", 551, 217, 92},
      {Kind::json_schema, R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,3,4,5]}})", 153, 18, 236},
      {Kind::json_schema, R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,3,4,5]},"maxItems":2})", 103, 18,
       156},
      {Kind::json_schema, R"({"type":"array","not":{"items":{"type":"integer"}}})", 588, 217, 71},
      {Kind::json_schema, R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":{"type":"null"}})", 85, 20,
       1},
      {Kind::json_schema, R"({"type":"array","items":{"type":"array","items":{"type":"array","maxItems":3}}})", 727,
       217, 18},
  });
}

TEST(ConstraintSizes, Objects) {
  expect_sizes({
      {Kind::json_schema, R"({"type":"object"})", 370, 217, 8},
      {Kind::json_schema,
       R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"ok":{"type":"boolean"}},"required":["name"]})",
       742, 217, 13},
      {Kind::json_schema,
       R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false})",
       205, 217, 2},
      {Kind::json_schema, R"({"type":"object","additionalProperties":{"type":"integer"},"maxProperties":4})", 157, 63,
       2},
      {Kind::json_schema, R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":1})", 762, 217, 18},
      {Kind::json_schema,
       R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1},"c":{"const":1}},"additionalProperties":false,"minProperties":2})",
       182, 22, 60},
      {Kind::json_schema, R"({"type":"object","required":["a"],"properties":{"b":{}},"minProperties":2})", 762, 217,
       18},
      {Kind::json_schema, R"({"type":"object","patternProperties":{"^x-":{"type":"string"},"[0-9]$":{"type":"null"}}})",
       646, 217, 12},
      {Kind::json_schema, R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"required":["q"]})", 624, 217, 14},
      {Kind::json_schema, R"({"type":"object","propertyNames":{"enum":["a","b"]}})", 536, 217, 11},
      {Kind::json_schema, R"({"type":"object","not":{"properties":{"a":{"const":1}}}})", 665, 217, 15},
      {Kind::json_schema, R"({"type":"object","not":{"additionalProperties":{"type":"null"}},"properties":{"a":{}}})",
       1035, 217, 79},
      {Kind::json_schema,
       R"({"type":"object","not":{"patternProperties":{"^a":{"type":"null"}}},"maxProperties":3,"required":["b"]})",
       745, 217, 51},
      {Kind::json_schema, R"({"type":"object","dependentRequired":{"a":["b"]},"properties":{"a":{},"b":{}}})", 1040,
       217, 26},
      {Kind::json_schema,
       R"({"type":"object","allOf":[{"properties":{"a":{}}}],"properties":{"b":{}},"unevaluatedProperties":false})",
       624, 217, 14},
  });
}

std::string object_of(int properties, const std::string& more) {
  std::string out = R"({"type":"object","properties":{)";
  for (int i = 0; i < properties; ++i) out += fmt::format(R"({}"key{}":{{"const":{}}})", i ? "," : "", i, i % 3);
  return out + "}" + more + "}";
}

// Long lists share a tree of keys: a member costs a few states besides its key.
TEST(ConstraintSizes, LongObjects) {
  expect_sizes({{Kind::json_schema, object_of(64, ""), 4373, 217, 12},
                {Kind::json_schema, object_of(65, ""), 2966, 217, 184},
                {Kind::json_schema, object_of(65, R"(,"additionalProperties":false)"), 2476, 32, 130},
                {Kind::json_schema, object_of(200, R"(,"required":["key7","key50","key199"])"), 8074, 217, 454},
                {Kind::json_schema, object_of(100, R"(,"minProperties":1,"maxProperties":9)"), 4264, 217, 254}});
}

TEST(ConstraintSizes, Combinations) {
  expect_sizes({
      {Kind::json_schema, R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":3},{"type":"null"}]})", 64, 214,
       1},
      {Kind::json_schema, R"({"oneOf":[{"type":"integer","minimum":3},{"type":"number","maximum":5}]})", 165, 11, 0},
      {Kind::json_schema,
       R"({"type":"object","oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},{"properties":{"k":{"const":"b"},"v":{"type":"integer"}},"required":["k","v"]}]})",
       1463, 217, 30},
      {Kind::json_schema,
       R"({"type":"object","properties":{"k":{"enum":["a","b"]}},"if":{"properties":{"k":{"const":"a"}},"required":["k"]},"then":{"required":["x"]},"else":{"required":["y"]}})",
       1320, 217, 31},
      {Kind::json_schema,
       R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}})",
       408, 41, 5},
      {Kind::json_schema, R"({"allOf":[{"type":"string","minLength":3},{"pattern":"x"},{"not":{"pattern":"y$"}}]})",
       187, 45, 0},
      {Kind::json_schema, R"({"type":["object","array"],"enum":[{"a":1,"b":2},[1,2],{"a":2}],"minProperties":2})", 218,
       26, 0},
      {Kind::json_schema, R"({"enum":[{"a":1,"b":2},{"a":"x"},[3]],"properties":{"a":{"type":"integer"}}})", 195, 27,
       2},
  });
}

TEST(ConstraintSizes, OtherSources) {
  expect_sizes({
      {Kind::regex, "(ab|a|b){0,20}c?", 42, 5, 0},
      {Kind::regex, "((a|aa){0,3}b?){0,10}", 71, 4, 0},
      {Kind::regex, "((a|ab){2,}c){3,}", 24, 5, 0},
      {Kind::regex, "(((a|aa){0,3}b?){0,3}c?){0,3}", 67, 5, 0},
      {Kind::regex, "[\\p{L}_][\\p{L}\\d_]*", 778, 110, 0},
      {Kind::regex, "\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d)?", 17, 8, 0},
      {Kind::regex, "[^\\x00-\\x1F\"]{1,30}", 571, 17, 0},
      {Kind::grammar, "root ::= \"a\" root \"b\" | \"\"", 4, 4, 1},
      {Kind::grammar,
       "root ::= sum\nsum ::= product (\"+\" product)*\nproduct ::= atom (\"*\" atom)*\natom ::= [0-9]+ | \"(\" sum "
       "\")\"",
       13, 8, 6},
      {Kind::grammar, "root ::= line+\nline ::= word (\" \" word){0,9} \"\\n\"\nword ::= [a-zé]{1,8}", 340, 11, 0},
      {Kind::structure,
       R"({"type":"triggered_tags","triggers":["<a","<b"],"tags":[{"begin":"<a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</a>"},{"begin":"<b>","content":{"type":"any_text"},"end":"</b>"}],"at_least_one":true})",
       72, 35, 10},
      {Kind::structure,
       R"({"type":"tags_with_separator","separator":", ","tags":[{"begin":"x","content":{"type":"regex","pattern":"[0-9]+"},"end":"y"}]})",
       10, 10, 3},
      {Kind::structure,
       R"({"type":"sequence","elements":[{"type":"text_until","end":"abab"},{"type":"const_string","value":"z"}]})", 9,
       6, 1},
  });
}

}  // namespace
}  // namespace millrace::testing
