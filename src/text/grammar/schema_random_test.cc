// Random schemas over few names and numbers: the compiled schema accepts exactly what a plain validator accepts.
#include <random>

#include "text/grammar/schema_values_test.h"

namespace millrace::testing {
namespace {

class RandomSchema {
 public:
  explicit RandomSchema(uint32_t seed) : random_(seed) {}

  SchemaJson root() {
    SchemaJson schema = one(3);
    if (!schema.is_object()) schema = {{"allOf", SchemaJson::array({schema})}};
    if (used_reference_) schema["$defs"] = {{"x", one(1, false)}, {"y", one(1, false)}};
    return schema;
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  template <typename T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + below(static_cast<uint32_t>(from.size())));
  }

  SchemaJson one(int depth, bool references = true) {
    const uint32_t kind = below(20);
    if (kind == 0) return below(3) > 0;
    if (kind == 1 && references)
      return used_reference_ = true, SchemaJson{{"$ref", below(2) ? "#/$defs/x" : "#/$defs/y"}};
    SchemaJson out = SchemaJson::object();
    const uint32_t family = below(7);
    if (below(3) > 0) out["type"] = type_of(family);
    if (below(12) == 0) out["type"] = {pick({"integer", "number", "null"}), pick({"string", "array", "object"})};
    for (uint32_t n = 1 + below(2); n > 0; --n) add(out, family, depth, references);
    if (depth > 0 && below(3) == 0) combine(out, depth - 1, references);
    return out;
  }
  const char* type_of(uint32_t family) {
    if (family < 2) return pick({"integer", "number"});
    if (family == 2) return "string";
    return family == 3 ? "array" : family < 6 ? "object" : pick({"null", "boolean", "integer"});
  }
  void add(SchemaJson& out, uint32_t family, int depth, bool references) {
    if (family < 2) number(out);
    if (family == 2) text(out);
    if (family == 3) list(out, depth, references);
    if (family == 4 || family == 5) object(out, depth, references);
    if (family == 6) values(out);
  }
  void number(SchemaJson& out) {
    switch (below(6)) {
      case 0: out["minimum"] = pick({-2.0, -0.5, 0.0, 1.0, 1.5, 3.0}); break;
      case 1: out["maximum"] = pick({-1.5, 0.0, 1.0, 2.5, 7.0, 100.0}); break;
      case 2: out["exclusiveMinimum"] = pick({-3, 0, 1, 99}); break;
      case 3: out["exclusiveMaximum"] = pick({-1, 0, 2, 8}); break;
      default: out["multipleOf"] = pick({2.0, 3.0, 0.5, 1.5, 0.25, 5.0}); break;
    }
  }
  void text(SchemaJson& out) {
    switch (below(4)) {
      case 0: out["minLength"] = below(4); break;
      case 1: out["maxLength"] = below(4); break;
      default:
        out["pattern"] = pick({"^a", "b$", "a.*b", "^[ab]+$", "^(ab|x1)$", "c?", "[0-9]", "^[a-c]{2,3}$"});
        break;
    }
  }
  void list(SchemaJson& out, int depth, bool references) {
    const auto inner = [&] { return depth > 0 ? one(depth - 1, references) : SchemaJson(true); };
    switch (below(8)) {
      case 0: out["minItems"] = below(4); break;
      case 1: out["maxItems"] = below(4); break;
      case 2: out["uniqueItems"] = true; break;
      case 3: out["prefixItems"] = SchemaJson::array({inner(), inner()}); break;
      case 4: out["contains"] = inner(); break;
      case 5:
        out["contains"] = inner();
        out[pick({"minContains", "maxContains"})] = below(3);
        break;
      default: out["items"] = inner(); break;
    }
  }
  void object(SchemaJson& out, int depth, bool references) {
    const auto inner = [&] { return depth > 0 ? one(depth - 1, references) : SchemaJson(true); };
    const auto name = [&] { return pick({"a", "b", "c", "ab"}); };
    switch (below(11)) {
      case 0: out["minProperties"] = below(3); break;
      case 1: out["maxProperties"] = below(4); break;
      case 2: out["additionalProperties"] = inner(); break;
      case 3: out["patternProperties"] = {{pick({"^a", "b$", "[0-9]"}), inner()}}; break;
      case 4: out["propertyNames"] = SchemaJson{{"pattern", pick({"^a", "^[a-c]+$"})}}; break;
      case 5: out["dependentRequired"] = {{name(), SchemaJson::array({name()})}}; break;
      case 6: out["dependentSchemas"] = {{name(), inner()}}; break;
      case 7: out["required"] = SchemaJson::array({name()}); break;
      case 8: out["additionalProperties"] = false; [[fallthrough]];
      default: out["properties"] = {{name(), inner()}, {pick({"x1", "c"}), inner()}}; break;
    }
  }
  void values(SchemaJson& out) {
    static const std::vector<SchemaJson> kSome = {
        1, 2, 0.5, "a", "ab", nullptr, true, SchemaJson::array({1, 2}), {{"a", 1}}, {{"a", "a"}, {"b", 1}}};
    const auto some = [&] { return kSome[below(static_cast<uint32_t>(kSome.size()))]; };
    if (below(3) == 0)
      out["const"] = some();
    else
      out["enum"] = SchemaJson::array({some(), some(), some()});
    if (out.contains("type")) out.erase("type");
  }
  void combine(SchemaJson& out, int depth, bool references) {
    const auto inner = [&] { return one(depth, references); };
    switch (below(6)) {
      case 0: out["allOf"] = SchemaJson::array({inner(), inner()}); break;
      case 1: out["anyOf"] = SchemaJson::array({inner(), inner()}); break;
      case 2: out["oneOf"] = SchemaJson::array({inner(), inner(), inner()}); break;
      case 3: out["not"] = inner(); break;
      case 4: out["oneOf"] = SchemaJson::array({inner(), inner()}); break;
      default:
        out["if"] = inner();
        if (below(4) > 0) out["then"] = inner();
        if (below(2) > 0) out["else"] = inner();
    }
  }

  std::mt19937 random_;
  bool used_reference_ = false;
};

class RandomSchemas : public ::testing::TestWithParam<uint32_t> {};

// label(once /5 /6 /7 /8 /9): the first hundreds of random schemas take the same paths
TEST_P(RandomSchemas, MatchAPlainValidator) {
  std::map<Kept, uint32_t> kept;
  for (uint32_t seed = GetParam() * 100; seed < (GetParam() + 1) * 100; ++seed) {
    const SchemaJson schema = RandomSchema(seed).root();
    ++kept[compare_with_oracle(schema, values_for(schema))];
    if (HasFailure()) return;
  }
  EXPECT_GE(kept[Kept::exactly], 60u);
  EXPECT_LE(kept[Kept::refused], 10u);
}

INSTANTIATE_TEST_SUITE_P(Hundreds, RandomSchemas, ::testing::Range(0u, 10u));

}  // namespace
}  // namespace millrace::testing
