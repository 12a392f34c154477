#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

Constraint structure_of(const char* text) { return make_constraint(Constraint::Kind::structure, text); }

TEST(Structure, SequencesChoicesAndParts) {
  TextMatcher m(structure_of(R"({"type": "sequence", "elements": [
      {"type": "const_string", "value": "<a>"}, {"type": "or", "elements": [{"type": "regex", "pattern": "[0-9]{2}"},
      {"type": "grammar", "grammar": "root ::= \"x\" y\ny ::= \"y\"+"}]}, {"type": "optional", "content": {"type": "const_string", "value": "!"}},
      {"type": "json_schema", "json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}]})"));
  EXPECT_EQ(m.error.message, "");
  EXPECT_TRUE(m.accepts("<a>12{\"n\":1}"));
  EXPECT_TRUE(m.accepts("<a>xyy!{\"n\": 1}"));
  EXPECT_FALSE(m.accepts("<a>1{\"n\":1}"));
  EXPECT_FALSE(m.accepts("<a>12{\"m\":1}"));
  EXPECT_FALSE(m.accepts("<a>12"));
}

TEST(Structure, TextUntilIsRequired) {
  TextMatcher m(structure_of(
      R"({"type": "sequence", "elements": [{"type": "text_until", "end": "</think>"}, {"type": "const_string", "value": "yes"}]})"));
  EXPECT_TRUE(m.accepts("</think>yes"));
  EXPECT_TRUE(m.accepts("well </thin</think>yes"));
  EXPECT_FALSE(m.accepts("yes"));
  EXPECT_FALSE(m.accepts("a</think>"));
  EXPECT_FALSE(m.accepts("a</think>b</think>yes"));
}

TEST(Structure, TriggeredTags) {
  const std::string tags =
      R"("triggers": ["<c"], "tags": [{"begin": "<c=a>", "content": {"type": "regex", "pattern": "[0-9]"}, "end": "</c>"},
      {"begin": "<c=b>", "content": {"type": "const_string", "value": "z"}, "end": "</c>"}])";
  TextMatcher free(structure_of((R"({"type": "triggered_tags", )" + tags + "}").c_str()));
  EXPECT_EQ(free.error.message, "");
  EXPECT_TRUE(free.accepts(""));
  EXPECT_TRUE(free.accepts("free < text"));
  EXPECT_TRUE(free.accepts("free <c=a>1</c> and <c=b>z</c>."));
  EXPECT_FALSE(free.accepts("free <c=a>z</c>"));
  EXPECT_FALSE(free.accepts("free <c>"));
  EXPECT_FALSE(free.accepts("free <c=a>1"));
  TextMatcher once(structure_of((R"({"type": "triggered_tags", "stop_after_first": true, )" + tags + "}").c_str()));
  EXPECT_TRUE(once.accepts("x<c=a>1</c>"));
  EXPECT_TRUE(once.accepts("x"));
  EXPECT_FALSE(once.accepts("x<c=a>1</c>x"));
  TextMatcher must(structure_of((R"({"type": "triggered_tags", "at_least_one": true, )" + tags + "}").c_str()));
  EXPECT_FALSE(must.accepts("x"));
  EXPECT_TRUE(must.accepts("x<c=a>1</c>"));
  EXPECT_TRUE(must.accepts("x<c=a>1</c> and <c=b>z</c> end"));
  TextMatcher two(structure_of(
      R"({"type": "triggered_tags", "triggers": ["<x>", "[y]"], "tags": [{"begin": "<x>", "content": {"type": "const_string", "value": "1"}, "end": ""},
      {"begin": "[y]", "content": {"type": "const_string", "value": "2"}, "end": ""}]})"));
  EXPECT_TRUE(two.accepts("<x[y]2<x>1"));
  EXPECT_FALSE(two.accepts("<x>2"));
}

// Items whose keys begin with another's are compiled in another way, and so are items without keys.
TEST(Structure, ListedItems) {
  for (const std::string key : {"c:", "a:c:"}) {
    TextMatcher m(structure_of((R"({"type": "listed", "separator": ",", "open": "{", "close": "}", "items": [
        {"key": "a:", "content": {"type": "regex", "pattern": "[0-9]"}},
        {"key": "b:", "content": {"type": "const_string", "value": "x"}, "required": true},
        {"key": ")" + key + R"(", "content": {"type": "json_schema", "json_schema": {"$ref": "#/$defs/n"}}}],
        "definitions": {"$defs": {"n": {"const": 7}}}})")
                                   .c_str()));
    EXPECT_EQ(m.error.message, "");
    for (const std::string& right :
         {std::string("{b:x}"), std::string("{a:1,b:x}"), "{a:1,b:x," + key + "7}", "{b:x," + key + "7}"})
      EXPECT_TRUE(m.accepts(right)) << right;
    for (const std::string& wrong : {std::string("{}"), std::string("{a:1}"), std::string("{b:x,a:1}"),
                                     std::string("{b:x,}"), "{" + key + "7}", "{b:x," + key + "8}"})
      EXPECT_FALSE(m.accepts(wrong)) << wrong;
  }
  TextMatcher list(structure_of(R"({"type": "listed", "separator": ",", "open": "[", "close": "]", "repeated": true,
      "items": [{"content": {"type": "regex", "pattern": "[0-9]"}}]})"));
  EXPECT_TRUE(list.accepts("[]"));
  EXPECT_TRUE(list.accepts("[1]"));
  EXPECT_TRUE(list.accepts("[1,2,3]"));
  EXPECT_FALSE(list.accepts("[1,]"));
  EXPECT_FALSE(list.accepts("[1 2]"));
  TextMatcher none(structure_of(R"({"type": "listed", "separator": ",", "items": []})"));
  EXPECT_TRUE(none.accepts(""));
  EXPECT_FALSE(none.accepts(","));
}

TEST(Structure, TagsWithSeparatorAndTheLegacyForm) {
  TextMatcher m(structure_of(
      R"x({"type": "tags_with_separator", "at_least_one": true, "separator": ", ", "tags": [{"begin": "(", "content": {"type": "any_text"}, "end": ")"}]})x"));
  EXPECT_FALSE(m.accepts(""));
  EXPECT_TRUE(m.accepts("(a), (b)"));
  EXPECT_FALSE(m.accepts("(a), "));
  TextMatcher old(structure_of(
      R"({"type": "structural_tag", "structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f>"]})"));
  EXPECT_TRUE(old.accepts("hello <f>12</f>"));
  EXPECT_FALSE(old.accepts("hello <f>a</f>"));
  EXPECT_FALSE(old.accepts("hello <f>\"a\"</f>"));
  TextMatcher any(structure_of(
      R"({"type": "structural_tag", "structures": [{"begin": "<f>", "end": "</f>"}], "triggers": ["<f>"]})"));
  EXPECT_TRUE(any.accepts("hello <f>\"a\"</f>")) << "without a schema every value is allowed";
  EXPECT_FALSE(any.accepts("hello <f>a</f>"));
}

TEST(Structure, AnyTextMayBeEmpty) {
  TextMatcher any(structure_of(R"({"type": "any_text"})"));
  for (const char* text : {"", "a", "\n", "\xF0\x9F\x98\x80", "a\xC3\xA9 b"}) EXPECT_TRUE(any.accepts(text)) << text;
  for (const char* text : {"\xC3", "a\xFF", "\xED\xA0\x80"}) EXPECT_FALSE(any.accepts(text)) << text;
  TextMatcher between(structure_of(R"x({"type": "tag", "begin": "(", "content": {"type": "any_text"}, "end": ")"})x"));
  for (const char* text : {"()", "(a)", "())"}) EXPECT_TRUE(between.accepts(text)) << text;
  for (const char* text : {"(", "", "a()"}) EXPECT_FALSE(between.accepts(text)) << text;
}

TEST(Structure, ListsMustBeLists) {
  const std::string tags = R"("tags": [{"begin": "<", "content": {"type": "any_text"}, "end": ""}])";
  const std::pair<std::string, const char*> parts[] = {{R"("type": "sequence")", "elements"},
                                                       {R"("type": "or")", "elements"},
                                                       {R"("type": "triggered_tags", )" + tags, "triggers"},
                                                       {R"("type": "triggered_tags", "triggers": ["<"])", "tags"},
                                                       {R"("type": "tags_with_separator", "separator": ",")", "tags"}};
  for (const auto& [part, key] : parts) {
    const std::string wanted = std::string("structure: the structure.") + key + ": must be a non-empty array";
    EXPECT_EQ(TextMatcher(structure_of(("{" + part + "}").c_str())).error.message, wanted) << part;
    for (const char* value : {"null", "true", "7", "\"<\"", "{}", R"({"type": "any_text"})", "[]"}) {
      const TextMatcher m(structure_of(("{" + part + ", \"" + key + "\": " + value + "}").c_str()));
      EXPECT_EQ(m.error.message, wanted) << part << " " << value;
      EXPECT_EQ(m.error.kind, ErrorKind::user);
    }
  }
}

TEST(Structure, ErrorsNameThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "must be a JSON object"},
      {R"({"type": "sequence", "elements": []})", "the structure.elements"},
      {R"({"type": "sequence", "elements": [{"type": "const_string"}]})", "the structure.elements[0].value"},
      {R"({"type": "other"})", "'other'"},
      {R"({"type": "regex", "pattern": "("})", "regex"},
      {R"({"type": "triggered_tags", "triggers": ["<a"], "tags": [{"begin": "<b", "content": {"type": "any_text"}, "end": ""}]})",
       "triggers[0]"},
      {R"({"type": "triggered_tags", "triggers": ["<a", "a"], "tags": [{"begin": "<a", "content": {"type": "any_text"}, "end": ""}, {"begin": "a", "content": {"type": "any_text"}, "end": ""}]})",
       "substring of"},
      {R"({"type": "text_until", "end": ""})", "empty"},
      {R"({"type": "json_schema", "json_schema": {"type": "nothing"}})", "JSON schema"}};
  for (const auto& [text, reason] : cases) {
    TextMatcher m(structure_of(text));
    EXPECT_NE(m.error.message.find(reason), std::string::npos) << text << " -> " << m.error.message;
  }
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += R"({"type": "optional", "content": )";
  EXPECT_FALSE(TextMatcher(structure_of((deep + "1" + std::string(300, '}')).c_str())).error.message.empty());
}

}  // namespace
}  // namespace millrace::testing
