// Values for tests of schemas: all small values over a few scalars, keys and items, and values next to the constants of
// the schema. Also compares a compiled schema with the plain validator on these values.
#pragma once

#include <string>
#include <vector>

#include "text/grammar/grammar_test.h"
#include "text/grammar/schema_oracle_test.h"

namespace millrace::testing {

inline std::vector<SchemaJson> small_scalars() {
  std::vector<SchemaJson> out = {nullptr, true, false};
  for (int v = -4; v <= 12; ++v) out.emplace_back(v);
  for (const double v : {-2.5, -1.5, -0.5, -0.25, 0.25, 0.5, 0.75, 1.25, 1.5, 2.5, 3.5, 7.5, 99.5}) out.emplace_back(v);
  for (const int v : {-100, -99, 15, 24, 30, 99, 100, 101, 1000}) out.emplace_back(v);
  for (const char* v : {"", "a", "b", "c", "ab", "ba", "aa", "abc", "aab", "abcd", "x1", "1", "\xC3\xA9",
                        "\xC3\xA9"
                        "a",
                        "\"", "\n"})
    out.emplace_back(v);
  return out;
}

// Returns scalars, lists of up to three items, and objects of up to three members.
inline const std::vector<SchemaJson>& small_values() {
  static const std::vector<SchemaJson> all = [] {
    std::vector<SchemaJson> out = small_scalars();
    const std::vector<SchemaJson> items = {1, 2, "a", nullptr, 0.5};
    out.push_back(SchemaJson::array());
    for (const SchemaJson& a : items) {
      out.push_back(SchemaJson::array({a}));
      for (const SchemaJson& b : items) {
        out.push_back(SchemaJson::array({a, b}));
        for (const int c : {1, 2}) out.push_back(SchemaJson::array({a, b, c}));
      }
    }
    for (size_t n = 4; n < 7; ++n) out.push_back(SchemaJson(std::vector<int>(n, 1)));
    out.push_back({1, 2, "a", 3});
    out.push_back({SchemaJson::array({1}), SchemaJson::object()});
    const std::vector<std::string> keys = {"a", "b", "c", "ab", "x1"};
    const std::vector<SchemaJson> members = {1, "a", SchemaJson::array({2})};
    out.push_back(SchemaJson::object());
    for (size_t i = 0; i < keys.size(); ++i)
      for (const SchemaJson& one : members) {
        out.push_back({{keys[i], one}});
        for (size_t j = i + 1; j < keys.size(); ++j) {
          for (const SchemaJson& two : members) out.push_back({{keys[i], one}, {keys[j], two}});
          for (size_t k = j + 1; k < keys.size(); ++k) out.push_back({{keys[i], one}, {keys[j], 1}, {keys[k], 2}});
        }
      }
    out.push_back({{"a", 1}, {"b", 2}, {"c", 3}, {"ab", 4}});
    out.push_back({{"a", {{"a", 1}}}});
    out.push_back({{"a", {{"b", "a"}}}, {"b", nullptr}});
    out.push_back({{"", 1}});
    return out;
  }();
  return all;
}

// Returns the number, an integer without a decimal point, which is the spelling that every integer schema allows.
inline SchemaJson number_of(double v) {
  return v == std::floor(v) ? SchemaJson(static_cast<int64_t>(v)) : SchemaJson(v);
}

// Appends the constants of a schema, and values next to them, to `out`.
inline void add_values_of(const SchemaJson& schema, std::vector<SchemaJson>& out) {
  if (schema.is_number() && std::fabs(schema.get<double>()) < 1e6) {
    const double v = schema.get<double>();
    for (const double by : {-1.0, -0.5, -0.01, 0.0, 0.01, 0.5, 1.0, v, -2 * v}) out.push_back(number_of(v + by));
    if (v >= 0 && v <= 40 && v == std::floor(v))
      for (double n = std::max(0.0, v - 1); n <= v + 1; ++n) {
        out.emplace_back(std::string(static_cast<size_t>(n), 'a'));
        out.push_back(SchemaJson(std::vector<int>(static_cast<size_t>(n), 1)));
      }
  }
  if (!schema.is_structured()) return;
  for (const auto& [key, part] : schema.items()) {
    if (key == "const") out.push_back(part);
    if (key == "enum") out.insert(out.end(), part.begin(), part.end());
    add_values_of(part, out);
  }
}

inline std::vector<SchemaJson> values_for(const SchemaJson& schema) {
  std::vector<SchemaJson> out = small_values();
  add_values_of(schema, out);
  return out;
}

enum class Kept { exactly, weakened, nothing, refused };

// Compares the compiled schema with the plain validator on all values. If the result is `weakened`, invalid values may
// have been accepted; if it is `refused`, the schema was not compiled and nothing was compared.
inline Kept compare_with_oracle(const SchemaJson& schema, const std::vector<SchemaJson>& values) {
  const SchemaOracle oracle(schema);
  TextMatcher matcher(schema_of(schema.dump()));
  if (!matcher.ok()) {
    const bool nothing = matcher.error.message.find("no text satisfies") != std::string::npos;
    EXPECT_TRUE(nothing || matcher.error.kind == ErrorKind::unsupported) << schema << ": " << matcher.error.message;
    if (!nothing) return Kept::refused;
    for (const SchemaJson& value : values)
      EXPECT_FALSE(oracle.valid(value)) << schema << " allows nothing, except for " << value;
    return Kept::nothing;
  }
  const bool weakened = !matcher.notes.weakened.empty();
  for (const SchemaJson& value : values) {
    const bool valid = oracle.valid(value), accepted = matcher.accepts_value(value);
    if (valid == accepted || (weakened && accepted)) continue;
    ADD_FAILURE() << schema << (valid ? " should accept " : " should not accept ") << value;
    break;
  }
  return weakened ? Kept::weakened : Kept::exactly;
}

// Expects that the schema is enforced exactly.
inline void expect_as_oracle(const std::string& schema) {
  const SchemaJson parsed = SchemaJson::parse(schema);
  EXPECT_EQ(compare_with_oracle(parsed, values_for(parsed)), Kept::exactly) << schema;
}

}  // namespace millrace::testing
