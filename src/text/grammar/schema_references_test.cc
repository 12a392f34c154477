// Reference resolution: every target is a different number, so that a reference accepts only that number.
#include <fmt/format.h>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

// The only number that the schema's property "r" may be; -1: the schema is rejected.
int target(const std::string& reference, const std::string& others, const char* keyword = "$ref") {
  const std::string schema = fmt::format(
      R"({{"type":"object","properties":{{"r":{{"{}":"{}"}}}},"required":["r"],{}}})", keyword, reference, others);
  TextMatcher matcher(schema_of(schema));
  if (!matcher.ok()) {
    EXPECT_NE(matcher.error.message.find(fmt::format("JSON schema: /properties/r: $ref '{}' has no target", reference)),
              std::string::npos)
        << matcher.error.message;
    return -1;
  }
  int found = -2;
  for (int n = 0; n < 40; ++n)
    if (matcher.accepts(fmt::format(R"({{"r":{}}})", n))) found = found == -2 ? n : -3;
  return found;
}

TEST(SchemaReferences, Pointers) {
  const std::string parts =
      R"("$defs":{"a":{"const":1},"a/b":{"const":2},"a~b":{"const":3},"a b":{"const":4},"a%b":{"const":5},"":{"const":6},"list":[{"const":7},{"const":8}],
      "é":{"const":9},"~1":{"const":10},"x":{"properties":{"y":{"const":11}}},"01":{"const":12},"Zz":{"const":13},"a~2":{"const":14},"%":{"const":15},"q%4":{"const":16},"j":{"const":17}},
      "allOf":[true,{"title":"t","then":{"const":18}}])";
  const std::pair<const char*, int> table[] = {
      {"#/$defs/a", 1},        {"#/%24defs/a", 1},     {"#/$defs/a~1b", 2},
      {"#/$defs/a~0b", 3},     {"#/$defs/a%20b", 4},   {"#/$defs/a b", 4},
      {"#/$defs/a%25b", 5},    {"#/$defs/a%b", 5},     {"#/$defs/", 6},
      {"#/$defs/list/0", 7},   {"#/$defs/list/1", 8},  {"#/$defs/list/2", -1},
      {"#/$defs/list/x", -1},  {"#/$defs/list/", -1},  {"#/$defs/list/00000001", -1},
      {"#/$defs/list/-1", -1}, {"#/$defs/%C3%A9", 9},  {"#/$defs/%c3%a9", 9},
      {"#/$defs/é", 9},        {"#/$defs/~01", 10},    {"#/$defs/x/properties/y", 11},
      {"#/$defs/01", 12},      {"#/$defs/%5A%7a", 13}, {"#/$defs/%5a%7A", 13},
      {"#/$defs/a~2", 14},     {"#/$defs/%", 15},      {"#/$defs/q%4", 16},
      {"#/$defs/%6A", 17},     {"#/$defs/%6a", 17},    {"#/allOf/1/then", 18},
      {"#/allOf/01/then", 18}, {"#/$defs/none", -1},   {"#/$defs/a/const/x", -1},
      {"#/$defs/a~", -1},      {"#/$defs/a%2", -1},    {"#/$defs/%4g", -1},
      {"#/$defs/%g4", -1}};
  for (const auto& [reference, number] : table) EXPECT_EQ(target(reference, parts), number) << reference;
}

TEST(SchemaReferences, AddressesAndAnchors) {
  const std::string parts = R"("$id":"http://h.example/dir/root.json","$defs":{
      "a":{"$id":"other.json","const":1,"$defs":{"in":{"const":2},"deep":{"$id":"sub/leaf.json","const":3,"$defs":{"n":{"$anchor":"leaf","const":4}}}}},
      "b":{"$id":"/top.json","const":5},"c":{"$id":"http://else.example","const":6,"$defs":{"k":{"$id":"beside.json","const":7}}},
      "d":{"$anchor":"here","const":8},"e":{"$id":"#old","const":9},"f":{"$id":"urn:x:y","const":10,"$defs":{"u":{"$anchor":"in","const":11}}},
      "g":{"$dynamicAnchor":"moves","const":12},"h":{"$id":"frag.json#part","const":13},"dir":{"$id":"folder/","const":14,"$defs":{"z":{"$id":"file","const":15}}},
      "data":{"const":{"$id":"http://h.example/dir/data.json"}},"later":{"$anchor":"here","const":16}})";
  const std::pair<const char*, int> table[] = {{"other.json", 1},
                                               {"http://h.example/dir/other.json", 1},
                                               {"/dir/other.json", 1},
                                               {"other.json#", 1},
                                               {"other.json#/$defs/in", 2},
                                               {"sub/leaf.json", 3},
                                               {"/dir/sub/leaf.json", 3},
                                               {"sub/leaf.json#leaf", 4},
                                               {"#leaf", -1},
                                               {"/top.json", 5},
                                               {"http://h.example/top.json", 5},
                                               {"top.json", -1},
                                               {"http://else.example", 6},
                                               {"http://else.example/beside.json", 7},
                                               {"#here", 8},
                                               {"root.json#here", 8},
                                               {"#old", 9},
                                               {"urn:x:y", 10},
                                               {"urn:x:y#in", 11},
                                               {"urn:x:y#/$defs/u", 11},
                                               {"#moves", 12},
                                               {"frag.json", 13},
                                               {"#part", 13},
                                               {"folder/", 14},
                                               {"folder/file", 15},
                                               {"data.json", -1},
                                               {"nowhere.json", -1},
                                               {"http://h.example/dir/root.json#/$defs/d", 8},
                                               {"root.json#/$defs/a/$defs/in", 2},
                                               {"other.json#here", -1},
                                               {"#/$defs/g", 12}};
  for (const auto& [reference, number] : table) EXPECT_EQ(target(reference, parts), number) << reference;
  const std::string bare =
      R"("$defs":{"a":{"$id":"x.json","const":1},"b":{"$id":"dir/y.json","const":2,"$defs":{"c":{"$id":"z.json","const":3}}},"p":{"properties":{"$id":{"const":4}},"const":5,"$id":"named"},
      "plain":{"properties":{"$anchor":{"const":6}}},"e":{"examples":[{"$anchor":"shown"}],"enum":[{"$anchor":"listed"}],"default":{"$anchor":"else"}}})";
  const std::pair<const char*, int> more[] = {{"x.json", 1},
                                              {"dir/y.json", 2},
                                              {"dir/z.json", 3},
                                              {"z.json", -1},
                                              {"named", 5},
                                              {"#/$defs/p/properties/$id", 4},
                                              {"#/$defs/plain/properties/$anchor", 6},
                                              {"#shown", -1},
                                              {"#listed", -1},
                                              {"#else", -1}};
  for (const auto& [reference, number] : more) EXPECT_EQ(target(reference, bare), number) << reference;
}

TEST(SchemaReferences, OlderDrafts) {
  const std::string ids =
      R"("definitions":{"a":{"id":"#four","const":1},"b":{"$id":"#seven","const":2},"c":{"$id":"#lost","$ref":"#/definitions/a"}})";
  const std::string four = R"("$schema":"http://json-schema.org/draft-04/schema#",)" + ids,
                    seven = R"("$schema":"http://json-schema.org/draft-07/schema#",)" + ids;
  EXPECT_EQ(target("#four", four), 1);
  EXPECT_EQ(target("#seven", four), -1);
  EXPECT_EQ(target("#four", seven), -1);
  EXPECT_EQ(target("#seven", seven), 2);
  EXPECT_EQ(target("#lost", seven), -1);
  EXPECT_EQ(target("#four", R"("$schema":"http://json-schema.org/draft-03/schema#",)" + ids), 1);
  for (const char* draft : {"draft-03", "draft-04", "draft-05", "draft-06", "draft-07", "2019-09", "2020-12"}) {
    const bool old = draft[0] == 'd';
    TextMatcher matcher(schema_of(fmt::format(
        R"({{"$schema":"https://json-schema.org/{}/schema","type":"array","items":{{"$ref":"#/$defs/n","maximum":3}},"$defs":{{"n":{{"type":"integer"}}}}}})",
        draft)));
    ASSERT_TRUE(matcher.ok()) << matcher.error.message;
    EXPECT_TRUE(matcher.accepts("[3]"));
    EXPECT_EQ(matcher.accepts("[4]"), old) << draft;
  }
  TextMatcher exclusive(schema_of(
      R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"integer","minimum":2,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":false})"));
  for (int n = 0; n < 12; ++n) EXPECT_EQ(exclusive.accepts(std::to_string(n)), n > 2 && n <= 9) << n;
  TextMatcher turned(schema_of(
      R"({"type":"integer","not":{"minimum":2,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":true}})"));
  for (int n = 0; n < 12; ++n) EXPECT_EQ(turned.accepts(std::to_string(n)), n <= 2 || n >= 9) << n;
  TextMatcher contains(schema_of(
      R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":{"type":"integer"},"contains":{"const":1},"minContains":2,"maxContains":0})"));
  EXPECT_TRUE(contains.accepts("[1]"));
  EXPECT_TRUE(contains.accepts("[2,1,1]"));
  EXPECT_FALSE(contains.accepts("[2]"));
}

TEST(SchemaReferences, Dynamic) {
  EXPECT_EQ(target("#node", R"("$defs":{"a":{"$dynamicAnchor":"node","const":3}})", "$dynamicRef"), 3);
  EXPECT_EQ(target("#node", R"("$defs":{"a":{"$anchor":"node","const":4}})", "$dynamicRef"), 4);
  EXPECT_EQ(target("#/$defs/a", R"("$defs":{"a":{"$dynamicAnchor":"node","const":5}})", "$dynamicRef"), 5);
  EXPECT_EQ(
      target(
          "x.json#node",
          R"("$defs":{"a":{"$id":"x.json","const":6,"$dynamicAnchor":"node"},"b":{"$dynamicAnchor":"node","const":7}})",
          "$dynamicRef"),
      7);
  EXPECT_EQ(
      target("x.json#node",
             R"("$defs":{"a":{"$id":"x.json","const":6,"$anchor":"node"},"b":{"$dynamicAnchor":"node","const":7}})",
             "$dynamicRef"),
      6);
  EXPECT_EQ(target("x.json#node", R"("$defs":{"a":{"$id":"x.json","const":8,"$dynamicAnchor":"node"}})", "$dynamicRef"),
            8);
  const TextMatcher several(schema_of(
      R"({"properties":{"r":{"$dynamicRef":"x.json#node"}},"$defs":{"a":{"$id":"x.json","const":6,"$dynamicAnchor":"node"},"b":{"$id":"y.json","$dynamicAnchor":"node","const":7}}})"));
  EXPECT_EQ(several.error.message,
            "JSON schema: /properties/r: $dynamicRef 'x.json#node' is ambiguous: it has 2 possible targets");
  TextMatcher turned(schema_of(
      R"({"type":"integer","not":{"$dynamicRef":"#node"},"$defs":{"a":{"$dynamicAnchor":"node","minimum":3}}})"));
  for (int n = 0; n < 6; ++n) EXPECT_EQ(turned.accepts(std::to_string(n)), n < 3) << n;
}

// A slash before a colon makes a path of it; a path from the root keeps the authority, which may be empty.
TEST(SchemaReferences, AddressesOfOtherForms) {
  const std::string http = R"("$id":"http://h/dir/x.json","$defs":{"a":{"$id":"http://h/dir/sub/a:b.json","const":1},
      "b":{"$id":"http://h/p:q","const":2},"c":{"$id":"u:v","const":3},"d":{"$id":"u:v/w","const":4}})";
  const std::pair<const char*, int> first[] = {
      {"sub/a:b.json", 1}, {"/dir/sub/a:b.json", 1}, {"/p:q", 2},  {"p:q", -1}, {"u:v", 3},
      {"u:v/w", 4},        {"a:b.json", -1},         {"./u:v", -1}};
  for (const auto& [reference, number] : first) EXPECT_EQ(target(reference, http), number) << reference;
  const std::string file = R"("$id":"file:///x/y.json","$defs":{"a":{"$id":"file:///z.json","const":1},
      "b":{"$id":"file:///x/z.json","const":2},"c":{"$id":"http://h","const":3,"$defs":{"i":{"$id":"z","const":4}}}})";
  const std::pair<const char*, int> second[] = {
      {"/z.json", 1}, {"z.json", 2}, {"/x/z.json", 2}, {"http://h/z", 4}, {"http://z", -1}};
  for (const auto& [reference, number] : second) EXPECT_EQ(target(reference, file), number) << reference;
  const std::string plain =
      R"("$id":"dir/x.json","$defs":{"a":{"$id":"/z.json","const":1},"b":{"$id":"z.json","const":2}})";
  const std::pair<const char*, int> third[] = {{"/z.json", 1}, {"z.json", 2}, {"dir/z.json", -1}};
  for (const auto& [reference, number] : third) EXPECT_EQ(target(reference, plain), number) << reference;
}

TEST(SchemaReferences, OnlyHexadecimalDigitsAreDecoded) {
  const std::string parts =
      R"("$defs":{"%4g":{"const":1},"%g4":{"const":2},"%4G":{"const":3},"%@4":{"const":4},"%4`":{"const":5},"%4:":{"const":6},"%4/":{"const":7},
      "J":{"const":8},"O":{"const":9},"%4":{"const":10},"~2":{"const":11},"%":{"const":12},"~":{"const":13}})";
  const std::pair<const char*, int> table[] = {
      {"%4g", 1}, {"%g4", 2}, {"%4G", 3}, {"%@4", 4}, {"%4`", 5}, {"%4:", 6}, {"%4~1", 7}, {"%4A", 8},   {"%4a", 8},
      {"%4F", 9}, {"%4f", 9}, {"%4", 10}, {"~2", 11}, {"%", 12},  {"~0", 13}, {"~", 13},   {"%7E0", 13}, {"%7e2", 11}};
  for (const auto& [key, number] : table) EXPECT_EQ(target(std::string("#/$defs/") + key, parts), number) << key;
}

// Anchors count in schemas: in those that a keyword names too, whatever the names are, and not in data.
TEST(SchemaReferences, AnchorsUnderEachKeyword) {
  const std::string anchor = R"({"$anchor":"here","const":5})";
  const auto found = [](const std::string& part) { return target("#here", "\"then\":" + part); };
  const auto under = [](const std::string& key, const std::string& value) { return "{\"" + key + "\":" + value + "}"; };
  for (const char* names :
       {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}) {
    for (const char* name : {"a", "enum", "const", "default", "examples", "properties", "$id"})
      EXPECT_EQ(found(under(names, under(name, anchor))), 5) << names << " " << name;
    EXPECT_EQ(found(under(names, anchor)), -1) << names << ": $anchor is the name of a schema";
  }
  for (const char* one : {"not", "if", "then", "else", "items", "contains", "additionalItems", "additionalProperties",
                          "propertyNames", "unevaluatedItems", "unevaluatedProperties"})
    EXPECT_EQ(found(under(one, anchor)), 5) << one;
  for (const char* list : {"allOf", "anyOf", "oneOf", "prefixItems", "items"})
    EXPECT_EQ(found(under(list, "[true," + anchor + "]")), 5) << list;
  for (const char* data : {"enum", "const", "default", "examples"}) {
    EXPECT_EQ(found(under(data, anchor)), -1) << data;
    EXPECT_EQ(found(under(data, "[" + anchor + "]")), -1) << data;
    EXPECT_EQ(found(under(data, under("properties", under("a", anchor)))), -1) << data;
  }
}

TEST(SchemaReferences, ErrorLocationsAreJsonPointers) {
  const TextMatcher one(
      schema_of(R"({"properties":{"a/b":{"patternProperties":{"~x":{"allOf":[true,{"minLength":-1}]}}}}})"));
  EXPECT_EQ(one.error.message,
            "JSON schema: /properties/a~1b/patternProperties/~0x/allOf/1/minLength: must be a whole number, 0 or more");
}

}  // namespace
}  // namespace millrace::testing
