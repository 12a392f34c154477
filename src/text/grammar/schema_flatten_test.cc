// How a schema is resolved into alternatives: how many remain, where it becomes too large, and when oneOf is weakened.
#include "text/grammar/schema_flatten.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

namespace millrace {
namespace {

using OneOf = SchemaFlattener::OneOf;

std::string repeated_in(const char* key, int n, const std::string& one) {
  std::string out = std::string("{\"") + key + "\":[";
  for (int i = 0; i < n; ++i) out += (i ? "," : "") + one;
  return out + "]}";
}

struct Flattening {
  SchemaDocument document;
  GrammarLimits limits;
  GrammarNotes notes;
  SchemaFlattener::Empty empty;
  SchemaFlattener::Dead dead;
  std::unique_ptr<SchemaFlattener> flattener;

  explicit Flattening(const std::string& text, SchemaFlattener::Dead dead_if = nullptr) : dead(std::move(dead_if)) {
    EXPECT_TRUE(document.load(text, 200).ok()) << text;
  }
  // The alternatives of the whole document, or of one of its $defs.
  Result<std::vector<FlatSchema>> of(const char* name = nullptr) {
    if (!flattener) flattener = std::make_unique<SchemaFlattener>(document, limits, notes, OneOf::exact, empty, dead);
    return flattener->flatten({name ? &document.root().at("$defs").at(name) : &document.root()});
  }
  std::string message(const char* name = nullptr) {
    const auto found = of(name);
    if (found.ok()) return "";
    EXPECT_EQ(found.error().kind, ErrorKind::unsupported);
    return found.error().message;
  }
};

TEST(SchemaFlatten, ContradictionsEndAnAlternative) {
  const std::string k = R"({"type":"object","required":["k"],"properties":{"k":{"const":"a"}},"not":)";
  const auto not_k = [&](const std::string& inner) {
    return k + R"({"required":["k"],"properties":{"k":)" + inner + "}}}";
  };
  const std::pair<std::string, size_t> table[] = {
      {"true", 1},
      {"false", 0},
      {R"({"allOf":[{"type":"string"},{"type":["null","boolean"]}]})", 0},
      {R"({"allOf":[{"enum":[1,"a"]},{"type":"null"}]})", 0},
      {R"({"allOf":[{"enum":[1,"a"]},{"type":"string"}]})", 1},
      {R"({"allOf":[{"enum":[]},{"type":"string"}]})", 0},
      {R"({"allOf":[{"const":[]},{"type":"object"}]})", 0},
      {R"({"allOf":[{"const":{}},{"type":"object"}]})", 1},
      {R"({"allOf":[{"const":1.5},{"type":"number"}]})", 1},
      {R"({"type":"integer","not":{"type":"integer"}})", 0},
      {R"({"type":"number","not":{"type":"integer"}})", 1},
      {R"({"not":{"type":"integer"}})", 2},
      {R"({"required":["a"],"properties":{"a":false}})", 1},
      {R"({"type":"object","required":["a"],"properties":{"a":false}})", 0},
      {R"({"type":"object","required":["b"],"properties":{"a":false}})", 1},
      {R"({"type":"object","allOf":[{"properties":{"a":false}},{"required":["b","a"]}]})", 0},
      {R"({"type":"object","allOf":[{"required":["b","a"]},{"properties":{"a":false}}]})", 0},
      {R"({"type":"object","required":["k"],"allOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"enum":[2,3]}}}]})",
       0},
      {R"({"type":"object","required":["k"],"allOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"enum":[2,1]}}}]})",
       1},
      {R"({"type":"object","allOf":[{"properties":{"k":{"const":1}}},{"properties":{"k":{"enum":[2,3]}}}]})", 1},
      {not_k(R"({"const":"a"})"), 0},
      {not_k(R"({"title":"t","const":"a"})"), 0},
      {not_k(R"({"enum":["b","a"]})"), 0},
      {not_k(R"({"type":"string","const":"a"})"), 0},
      {not_k(R"({"type":["null","string"],"enum":["a"]})"), 0},
      {not_k(R"({"const":"b"})"), 1},
      {not_k(R"({"type":"number","const":"a"})"), 1},
      {not_k(R"({"minLength":2,"const":"a"})"), 1},
      {not_k(R"({"minLength":2})"), 1}};
  for (const auto& [text, ways] : table) {
    Flattening one(text);
    const auto found = one.of();
    ASSERT_TRUE(found.ok()) << text << ": " << found.error().message;
    EXPECT_EQ(found->size(), ways) << text;
  }
}

// A constant excludes every type but its own.
TEST(SchemaFlatten, AConstantHasOneType) {
  const std::pair<const char*, std::vector<const char*>> constants[] = {
      {"null", {"null"}},
      {"true", {"boolean"}},
      {"\"a\"", {"string"}},
      {"[]", {"array"}},
      {"[1]", {"array"}},
      {"{}", {"object"}},
      {"{\"a\":1}", {"object"}},
      {"1", {"integer", "number"}},
      {"1.5", {"integer", "number"}},  // looked at where numbers are built
      {"-7", {"integer", "number"}}};
  for (const auto& [value, types] : constants)
    for (const char* type : {"null", "boolean", "string", "array", "object", "integer", "number"})
      for (const char* key : {R"("const":%)", R"("enum":[%])"}) {
        std::string text = std::string(R"({"type":")") + type + "\"," + key + "}";
        text.replace(text.find('%'), 1, value);
        const bool possible = std::ranges::any_of(types, [&](std::string_view one) { return one == type; });
        EXPECT_EQ(Flattening(text).of().value().size(), possible ? 1u : 0u) << text;
      }
}

// The schemas of a oneOf are compared with each other up to 40 of them; those that exclude each other need no negation.
TEST(SchemaFlatten, SchemasOfAOneOfAreComparedInPairs) {
  for (const int n : {2, 39, 40, 41}) {
    std::string text = R"({"oneOf":[)";
    for (int i = 0; i < n; ++i) text += (i ? "," : "") + (R"({"minLength":)" + std::to_string(i + 1)) + "}";
    Flattening apart(text + "]}");
    size_t asked = 0;
    apart.empty = [&](const SchemaConjunction& both) {
      EXPECT_EQ(both.size(), 2u);
      ++asked;
      return true;
    };
    const auto found = apart.of();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->size(), static_cast<size_t>(n));
    EXPECT_EQ(asked, n <= 40 ? static_cast<size_t>(n * (n - 1) / 2) : 0u) << n;
    EXPECT_EQ(apart.flattener->turned(), n > 40);
    for (const FlatSchema& parts : *found) EXPECT_EQ(parts.size() == 2, n <= 40) << parts.size();
  }
}

TEST(SchemaFlatten, ANegatedListHasOneAlternativeForEachPlace) {
  const std::pair<const char*, size_t> table[] = {{R"({"not":{"prefixItems":[]}})", 0},
                                                  {R"({"not":{"prefixItems":[true,true]}})", 0},
                                                  {R"({"not":{"prefixItems":[true,{"type":"null"},true]}})", 1},
                                                  {R"({"not":{"prefixItems":[{"type":"null"},false]}})", 2},
                                                  {R"({"not":{"items":true}})", 0},
                                                  {R"({"not":{"items":false}})", 1},
                                                  {R"({"not":{"prefixItems":[false],"items":false}})", 2}};
  for (const auto& [text, ways] : table) {
    Flattening one(text);
    const auto found = one.of();
    ASSERT_TRUE(found.ok()) << text;
    EXPECT_EQ(found->size(), ways) << text;
  }
}

// Up to 32 alternatives are kept unasked. Where three choices or more multiply to more than that, the part before is
// asked about.
TEST(SchemaFlatten, ManyAlternativesAreAskedAbout) {
  struct Case {
    std::vector<int> sizes;  // of the choices; the last one is taken first
    size_t kept;
  };
  for (const auto& [sizes, kept] : std::vector<Case>{{{31}, 31},
                                                     {{32}, 32},
                                                     {{33}, 32},
                                                     {{40}, 32},
                                                     {{33, 1}, 32},
                                                     {{32, 1, 1}, 32},
                                                     {{33, 1, 1}, 0},
                                                     {{17, 1, 2}, 17},
                                                     {{1, 1, 33}, 32},
                                                     {{4, 4, 4}, 12}}) {
    std::string text = R"({"allOf":[)", most;
    size_t all = 1;
    for (const int n : sizes) {
      text += (text.back() == '[' ? "" : ",") + repeated_in("anyOf", n, R"({"minLength":1})");
      all *= static_cast<size_t>(n);
    }
    text += "]}";
    Flattening dead(text, [](const FlatSchema&) { return true; });
    Flattening alive(text, [](const FlatSchema&) { return false; });
    Flattening unasked(text);
    EXPECT_EQ(dead.of().value().size(), kept) << text;
    EXPECT_EQ(alive.of().value().size(), all) << text;
    EXPECT_EQ(unasked.of().value().size(), all) << text;
  }
}

TEST(SchemaFlatten, SizesAtTheirLimits) {
  EXPECT_EQ(Flattening(repeated_in("allOf", 2000, R"({"anyOf":[true]})")).message(), "");
  EXPECT_EQ(Flattening(repeated_in("allOf", 2001, R"({"anyOf":[true]})")).message(),
            "JSON schema: too large: its combinations are nested too deeply");
  const std::string slow = "JSON schema: too large: its combinations take too long to resolve";
  EXPECT_EQ(Flattening(repeated_in("allOf", 20'000, "true")).message(), slow);
  Flattening often(repeated_in("allOf", 19'999, "true"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(often.message(), "") << i;
  EXPECT_EQ(often.message(), slow) << "400,000 schemas in total";
  Flattening few(repeated_in("anyOf", 5, R"({"minLength":1})"));
  few.limits.alternatives = 5;
  EXPECT_EQ(few.message(), "");
  few.limits.alternatives = 4;
  EXPECT_EQ(few.message(), "JSON schema: : its combinations produce more than 4 alternatives");
}

// The weak form begins with no work counted: what took too long was the exact one.
TEST(SchemaFlatten, AOneOfThatTakesTooLongIsWeakened) {
  for (const int n : {60, 110}) {
    std::string text = R"({"oneOf":[)";
    for (int i = 0; i < n; ++i) text += (i ? "," : "") + (R"({"minLength":)" + std::to_string(i + 1)) + "}";
    Flattening one(text + "]}");
    const auto found = one.of();
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->size(), static_cast<size_t>(n));
    EXPECT_EQ(one.notes.weakened.size(), n == 110 ? 1u : 0u);
  }
}

TEST(SchemaFlatten, EachSchemaCountsAsWork) {
  for (const int n : {800, 1000}) {  // with no time left, which is noticed after 16384 steps
    CompileBudget budget({.seconds = 0});
    Flattening one(repeated_in("allOf", n, "true"));
    one.limits.budget = &budget;
    EXPECT_TRUE(budget.check().ok());
    const double begin = static_cast<double>(clock());
    while (static_cast<double>(clock()) <= begin) {
    }
    EXPECT_EQ(one.of().ok(), n == 800) << n;
  }
}

// Exactly one of three schemas with two keywords each: 3 * 2 * 2 alternatives.
constexpr const char* kOneOfs = R"({"$defs":{
  "large":{"oneOf":[{"minLength":1,"pattern":"a"},{"minLength":2,"pattern":"b"},{"minLength":3,"pattern":"c"}]},
  "small":{"oneOf":[{"minLength":1},{"pattern":"a"}]},"plain":{"minLength":1}}})";
constexpr const char* kLargeIsWeak =
    "/$defs/large/oneOf is enforced as anyOf: a value may match more than one of its schemas";

TEST(SchemaFlatten, OneOfIsWeakenedWhereItsAlternativesAreTooMany) {
  Flattening exact(kOneOfs);
  EXPECT_EQ(exact.of("large").value().size(), 12u);
  EXPECT_TRUE(exact.flattener->turned());
  EXPECT_TRUE(exact.notes.weakened.empty());

  Flattening weak(kOneOfs);
  weak.limits.alternatives = 4;
  EXPECT_EQ(weak.of("large").value().size(), 3u);
  EXPECT_EQ(weak.notes.weakened, std::vector<std::string>{kLargeIsWeak});
  EXPECT_FALSE(weak.flattener->turned());
  EXPECT_EQ(weak.of("plain").value().size(), 1u);
  EXPECT_FALSE(weak.flattener->turned()) << "no schema so far was enforced by negation";
  const auto small = weak.of("small").value();
  ASSERT_EQ(small.size(), 2u);
  for (const FlatSchema& parts : small)
    EXPECT_EQ(parts.size(), 4u) << "the oneOf, one schema, the negation of the other, its keyword";
  EXPECT_TRUE(weak.flattener->turned());
  EXPECT_EQ(weak.notes.weakened.size(), 1u);
}

// While a oneOf is resolved, whether two schemas exclude each other may need another schema resolved (propertyNames).
TEST(SchemaFlatten, AWeakOneOfResolvedOnTheWayLeavesTheOuterOneExact) {
  Flattening both(kOneOfs);
  both.limits.alternatives = 4;
  bool within = false;
  both.empty = [&](const SchemaConjunction&) {
    if (!within) {
      within = true;
      EXPECT_EQ(both.of("large").value().size(), 3u);
    }
    return false;
  };
  const auto small = both.of("small").value();
  EXPECT_TRUE(within);
  EXPECT_EQ(both.notes.weakened, std::vector<std::string>{kLargeIsWeak});
  ASSERT_EQ(small.size(), 2u);
  for (const FlatSchema& parts : small) EXPECT_EQ(parts.size(), 4u);
  EXPECT_TRUE(both.flattener->turned());
}

TEST(SchemaFlatten, AnyOfUnderUnevaluatedHasEachSubset) {
  for (const auto& [n, ways] : {std::pair{1, 1u}, {2, 3u}, {3, 7u}, {6, 63u}, {7, 7u}}) {
    std::string text = repeated_in("anyOf", n, R"({"minLength":1})");
    Flattening plain(text);
    EXPECT_EQ(plain.of().value().size(), static_cast<size_t>(n)) << n;
    text.insert(text.size() - 1, R"(,"unevaluatedProperties":false)");
    Flattening watched(text);
    EXPECT_EQ(watched.of().value().size(), ways) << n;
  }
}

}  // namespace
}  // namespace millrace
