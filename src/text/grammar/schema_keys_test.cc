// Keys that the schema does not name: every key but the named ones, and where all ways on from a key are allowed, the
// rule that all keys share.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"
#include "text/grammar/schema.h"
#include "text/unicode.h"

namespace millrace::testing {
namespace {

// The first and the last code points of each form that the automaton of a key tells apart.
std::vector<std::string> edge_characters() {
  std::vector<std::string> out;
  for (const uint32_t c :
       {0x00u,    0x07u,    0x08u,    0x0Bu,    0x0Eu,     0x0Fu,    0x10u,   0x19u,    0x1Au,    0x1Fu,
        0x20u,    0x21u,    0x22u,    0x2Fu,    0x5Bu,     0x5Cu,    0x5Du,   0x7Eu,    0x7Fu,    0x80u,
        0x9Fu,    0xA0u,    0xBFu,    0xC0u,    0xE9u,     0xFFu,    0x7FFu,  0x800u,   0x83Fu,   0x840u,
        0xFFFu,   0x1000u,  0xCFFFu,  0xD000u,  0xD7FFu,   0xE000u,  0xFFFFu, 0x10000u, 0x1003Fu, 0x10040u,
        0x3FFFFu, 0x40000u, 0x4FFFFu, 0xFFFFFu, 0x100000u, 0x10FFFFu})
    append_utf8(out.emplace_back(), c);
  return out;
}

TEST(SchemaKeys, ANamedKeyHasItsOwnSchemaWhateverItsCharacter) {
  for (const std::string& c : edge_characters()) {
    SchemaJson schema = {{"type", "object"}, {"additionalProperties", {{"type", "integer"}}}};
    schema["properties"][c] = {{"type", "null"}};
    TextMatcher matcher(schema_of(schema.dump()));
    ASSERT_TRUE(matcher.ok()) << schema << ": " << matcher.error.message;
    const std::string key = spell_json(c);
    const auto accepts = [&](const std::string& name, const char* value) {
      return matcher.accepts(fmt::format(R"({{"{}":{}}})", name, value));
    };
    EXPECT_TRUE(accepts(key, "null")) << schema;
    EXPECT_FALSE(accepts(key, "1")) << schema;
    for (const std::string& other : {key + "x", "x" + key, key + key, std::string("x"), std::string()}) {
      EXPECT_TRUE(accepts(other, "1")) << schema << " " << other;
      EXPECT_FALSE(accepts(other, "null")) << schema << " " << other;
    }
  }
}

TEST(SchemaKeys, BehindANamedKeyAllKeysShareOneRule) {
  GrammarSpec spec;
  GrammarNotes notes;
  ASSERT_TRUE(compile_json_schema(spec, R"({"type":"object","properties":{"ab":{}}})", {}, notes).ok());
  std::shared_ptr<const Dfa> keys;
  for (size_t i = 0; i < spec.size(); ++i) {
    const Expr& expr = spec.at(static_cast<ExprId>(i));
    if (expr.kind != Expr::Kind::dfa) continue;
    EXPECT_FALSE(keys) << "one automaton, of the keys other than \"ab\"";
    keys = expr.dfa;
  }
  ASSERT_TRUE(keys);
  const auto after = [&](const std::string& text) {
    int32_t state = 0;
    for (size_t i = 0; i < text.size() && state >= 0; ++i) state = keys->step(state, static_cast<uint8_t>(text[i]));
    return state;
  };
  for (const std::string& c : edge_characters()) {
    for (const char* begin : {"", "a", "ab"}) {
      const int32_t state = after(begin + spell_json(c));
      ASSERT_GE(state, 0) << begin << spell_json(c);
      EXPECT_EQ(keys->calls[static_cast<size_t>(state)].size(), 1u) << "after '" << begin << spell_json(c) << "'";
      for (int byte = 0; byte < 256; ++byte) ASSERT_EQ(keys->step(state, static_cast<uint8_t>(byte)), -1);
    }
  }
  for (const auto& [key, ends] : {std::pair{"", true}, {"a", true}, {"ab", false}}) {
    const int32_t state = after(key);
    ASSERT_GE(state, 0);
    EXPECT_TRUE(keys->calls[static_cast<size_t>(state)].empty()) << key;
    EXPECT_EQ(keys->step(state, '"') >= 0, ends) << key;
  }
}

// Several members at the end of an object that together violate what was negated.
TEST(SchemaKeys, DemandsOnKeys) {
  const auto negated = [](const std::vector<std::string>& patterns) {
    std::string out = R"({"type":"object","allOf":[)";
    for (const std::string& pattern : patterns)
      out += (out.back() == '[' ? "" : ",") + (R"({"not":{"patternProperties":{")" + pattern + R"(":false}}})");
    return out + "]}";
  };
  TextMatcher four(schema_of(negated({"^a", "^b", "^c", "^d"})));
  ASSERT_TRUE(four.ok()) << four.error.message;
  EXPECT_TRUE(four.accepts_value(SchemaJson::parse(R"({"x":0,"d1":1,"b":2,"a3":3,"c":4})")));
  EXPECT_FALSE(four.accepts_value(SchemaJson::parse(R"({"x":0,"d1":1,"b":2,"a3":3})")));
  const TextMatcher five(schema_of(negated({"^a", "^b", "^c", "^d", "^e"})));
  EXPECT_EQ(five.error.message,
            "JSON schema: /allOf/4/not: 'not' over its properties: more than 4 of them at once are not supported");
  EXPECT_EQ(five.error.kind, ErrorKind::unsupported);

  TextMatcher three(schema_of(negated({"a", "b", "c"})));
  ASSERT_TRUE(three.ok()) << three.error.message;
  for (const char* in : {R"({"abc":0})", R"({"ab":0,"c":1})", R"({"a":0,"b":1,"c":2})", R"({"x":0,"ab":1,"bc":2})"})
    EXPECT_TRUE(three.accepts_value(SchemaJson::parse(in))) << in;
  for (const char* out : {"{}", R"({"ab":0})", R"({"a":0,"b":1,"x":2})"})
    EXPECT_FALSE(three.accepts_value(SchemaJson::parse(out))) << out;
  const TextMatcher many(schema_of(negated({"a", "b", "c", "d"})));
  EXPECT_EQ(many.error.message,
            "JSON schema: /allOf/3/not: 'not' over its properties: there are too many ways to violate them");
  EXPECT_EQ(many.error.kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace::testing
