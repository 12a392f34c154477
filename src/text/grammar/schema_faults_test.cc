// Schemas that were compiled wrongly once: far bounds, counts written as decimals, surrogates, schemas within schemas.
#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

struct SchemaFault {
  const char* schema;
  std::vector<const char*> in, out;
};

TEST(SchemaFaults, AreExactNow) {
  const SchemaFault faults[] = {
      {R"({"uniqueItems":true,"items":{"type":"integer","minimum":-10000000000,"maximum":5}})",
       {"[-5,3]", "[]"},
       {"[6]"}},
      {R"({"not":{"contains":{"const":1},"minContains":2.0}})", {"[1]", "[1,2]"}, {"[1,1]"}},
      {R"({"not":{"contains":{"const":1},"minContains":2}})", {"[1]", "[1,2]"}, {"[1,1]"}},
      {R"({"not":{"minLength":5000000000}})", {"\"\"", "\"abc\""}, {"1", "[]"}},
      {R"({"not":{"minItems":5e9}})", {"[]", "[1]"}, {"1", "\"\""}},
  };
  for (const auto& [schema, in, out] : faults) {
    TextMatcher matcher(schema_of(schema));
    ASSERT_TRUE(matcher.ok()) << schema << ": " << matcher.error.message;
    for (const char* text : in) EXPECT_TRUE(matcher.accepts(text)) << schema << " should accept " << text;
    for (const char* text : out) EXPECT_FALSE(matcher.accepts(text)) << schema << " should not accept " << text;
  }
}

TEST(SchemaFaults, APatternsLowSurrogateIsOne) {
  const TextMatcher wrong(schema_of(R"({"type":"string","pattern":"\\uD800\\u0041"})"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error.message.find("the code point does not exist"), std::string::npos) << wrong.error.message;
  TextMatcher pair(schema_of(R"({"type":"string","pattern":"^\\uD83D\\uDE00$"})"));
  ASSERT_TRUE(pair.ok()) << pair.error.message;
  EXPECT_TRUE(pair.accepts("\"\xF0\x9F\x98\x80\""));
}

}  // namespace
}  // namespace millrace::testing
