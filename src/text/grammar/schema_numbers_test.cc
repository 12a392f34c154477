// Numbers with bounds and multipleOf: decimals around every constant of a schema, in several spellings, against integer
// arithmetic in millionths.
#include "text/grammar/schema_numbers.h"

#include <fmt/format.h>

#include <random>
#include <set>

#include "text/grammar/grammar_test.h"

namespace millrace::testing {
namespace {

constexpr int64_t kOne = 1'000'000;

int64_t millionths(const SchemaJson& number) { return std::llround(number.get<double>() * kOne); }

// With that many digits after the point; without digits, no point.
std::string spelled(int64_t value, int digits) {
  const int64_t size = std::abs(value);
  std::string fraction = fmt::format("{:06}", size % kOne);
  if (digits > 6) fraction.append(static_cast<size_t>(digits - 6), '0');
  const std::string whole = (value < 0 ? "-" : "") + std::to_string(size / kOne);
  return digits == 0 ? whole : whole + "." + fraction.substr(0, static_cast<size_t>(digits));
}

int fewest_digits(int64_t value) {
  int digits = 6;
  for (int64_t size = std::abs(value); digits > 0 && size % 10 == 0; size /= 10) --digits;
  return digits;
}

bool allowed(const SchemaJson& schema, int64_t value) {
  if (schema.contains("not") && allowed(schema["not"], value)) return false;
  if (schema.contains("allOf"))
    for (const SchemaJson& part : schema["allOf"])
      if (!allowed(part, value)) return false;
  if (schema.contains("enum"))
    if (std::ranges::none_of(schema["enum"], [&](const SchemaJson& one) { return millionths(one) == value; }))
      return false;
  if (schema.contains("minimum") && value < millionths(schema["minimum"])) return false;
  if (schema.contains("maximum") && value > millionths(schema["maximum"])) return false;
  if (schema.contains("exclusiveMinimum") && value <= millionths(schema["exclusiveMinimum"])) return false;
  if (schema.contains("exclusiveMaximum") && value >= millionths(schema["exclusiveMaximum"])) return false;
  if (schema.contains("multipleOf") && value % millionths(schema["multipleOf"]) != 0) return false;
  return !schema.contains("type") || schema["type"] != "integer" || value % kOne == 0;
}

void add_constants(const SchemaJson& schema, std::set<int64_t>& out) {
  if (schema.is_number())
    for (const int64_t by : {int64_t{0}, int64_t{1}, int64_t{10'000}, int64_t{50'000}, int64_t{100'000}, kOne / 2, kOne,
                             2 * kOne, 9 * kOne, 10 * kOne, 90 * kOne})
      for (const int64_t sign : {-1, 1})
        for (const int64_t base : {millionths(schema), -millionths(schema), millionths(schema) / kOne * kOne})
          out.insert(base + sign * by);
  if (schema.is_structured())
    for (const SchemaJson& part : schema) add_constants(part, out);
}

void expect_numbers(const SchemaJson& schema) {
  TextMatcher matcher(schema_of(schema.dump()));
  std::set<int64_t> values;
  for (int64_t v = -25; v <= 25; ++v) values.insert(v * kOne), values.insert(v * kOne / 4), values.insert(v * 7 * kOne);
  add_constants(schema, values);
  if (!matcher.ok()) {
    EXPECT_EQ(matcher.error.message, "grammar: no text satisfies it") << schema;
    for (const int64_t value : values) EXPECT_FALSE(allowed(schema, value)) << schema << " " << spelled(value, 6);
    return;
  }
  const bool integer = schema.value("type", "") == "integer";
  for (const int64_t value : values)
    for (const int digits : {0, 1, 2, 3, 5, 6, 7, 20}) {
      if (digits < fewest_digits(value)) continue;
      const std::string text = spelled(value, digits);
      const bool in = allowed(schema, value) && !(integer && digits > 0);
      ASSERT_EQ(matcher.accepts(text), in) << schema << " " << text;
      if (value == 0) {
        ASSERT_EQ(matcher.accepts("-" + text), in) << schema << " -" << text;
      }
      ASSERT_FALSE(matcher.accepts("0" + text)) << schema;
      ASSERT_FALSE(matcher.accepts(text + (digits == 0 ? "." : ".0"))) << schema << " " << text;
      ASSERT_FALSE(matcher.accepts(text + "e0") || matcher.accepts("+" + text) || matcher.accepts("--" + text))
          << schema;
    }
}

TEST(SchemaNumbers, EachKeywordAroundItsConstant) {
  for (const char* type : {"number", "integer"})
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      for (const double bound : {0.0,  1.0,  -1.0,  9.0,   10.0,    -10.0,    99.0,  100.0, -100.0, 0.5,
                                 -0.5, 9.99, -9.99, 10.01, 123.456, -123.456, 0.009, 999.5, 1005.0, -2050.25})
        expect_numbers({{"type", type}, {key, bound}});
}

TEST(SchemaNumbers, CombinedBounds) {
  std::mt19937 random(3);
  const auto some = [&](int64_t range, int64_t per, int64_t more) {
    return static_cast<double>(static_cast<int64_t>(random() % static_cast<uint32_t>(range)) - range / 2 + more) /
           static_cast<double>(per);
  };
  for (int turn = 0; turn < 60; ++turn) {
    const int64_t per = turn % 3 == 0 ? 1 : turn % 3 == 1 ? 10 : 100, range = turn % 2 ? 60 : 30'000;
    SchemaJson schema = {{"type", turn % 4 ? "number" : "integer"}};
    schema[random() % 2 ? "minimum" : "exclusiveMinimum"] = some(range, per, 0);
    schema[random() % 2 ? "maximum" : "exclusiveMaximum"] = some(range, per, range / 4);
    expect_numbers(schema);
  }
}

TEST(SchemaNumbers, Multiples) {
  for (const double step :
       {1.0, 2.0, 3.0, 7.0, 10.0, 12.0, 25.0, 100.0, 0.5, 0.1, 0.25, 2.5, 0.01, 1.5, 0.75, 0.003, 30.0, 6.25})
    for (const char* type : {"number", "integer"}) {
      expect_numbers({{"type", type}, {"multipleOf", step}});
      expect_numbers({{"type", type}, {"not", {{"multipleOf", step}}}});
    }
  expect_numbers({{"type", "number"}, {"multipleOf", 0.5}, {"minimum", -1}, {"exclusiveMaximum", 7}});
  expect_numbers({{"type", "integer"}, {"not", {{"enum", {0, 5, -7, 2.5}}}}});
  expect_numbers({{"type", "number"}, {"not", {{"enum", {0, 5, -7, 2.5, -0.25}}}}});
  expect_numbers({{"type", "number"}, {"not", {{"minimum", 3}}}});
  expect_numbers({{"type", "number"}, {"not", {{"type", "integer"}}}, {"minimum", -3}});
  expect_numbers({{"type", "number"}, {"not", {{"type", "integer"}}}});
}

TEST(SchemaNumbers, CombinedMultiples) {
  const auto all = [](const std::vector<double>& of, const std::vector<double>& not_of, const char* type) {
    SchemaJson parts = SchemaJson::array();
    for (const double step : of) parts.push_back({{"multipleOf", step}});
    for (const double step : not_of) parts.push_back({{"not", {{"multipleOf", step}}}});
    expect_numbers({{"type", type}, {"allOf", parts}});
  };
  for (const char* type : {"number", "integer"}) {
    all({4, 6}, {}, type);
    all({2}, {3}, type);
    all({2, 3}, {5, 12}, type);
    all({}, {2, 3}, type);
    all({}, {2, 3, 7}, type);
    all({0.5, 3}, {}, type);
    all({1.5}, {2}, type);
  }
  all({8}, {27}, "integer");
}

// With more than 500 remainders, digits are not counted as well.
TEST(SchemaNumbers, DigitsAreCountedUpToTwenty) {
  TextMatcher few(schema_of(R"({"type":"number","allOf":[{"multipleOf":4},{"multipleOf":6}]})"));
  TextMatcher many(schema_of(R"({"type":"number","allOf":[{"multipleOf":125},{"multipleOf":16}]})"));
  TextMatcher none(schema_of(R"({"type":"number","minimum":1})"));
  TextMatcher whole(schema_of(R"({"type":"integer","allOf":[{"multipleOf":125},{"multipleOf":16}]})"));
  for (TextMatcher* one : {&few, &many, &none, &whole}) ASSERT_TRUE(one->ok()) << one->error.message;
  const std::string d20 = "1" + std::string(15, '0') + "2000", d21 = "1" + std::string(16, '0') + "2000";
  EXPECT_TRUE(few.accepts(d20));
  EXPECT_FALSE(few.accepts(d21));
  EXPECT_TRUE(none.accepts(d20 + "." + std::string(20, '5')));
  EXPECT_FALSE(none.accepts(d21));
  EXPECT_FALSE(none.accepts("1." + std::string(21, '5')));
  for (TextMatcher* one : {&many, &whole}) {
    EXPECT_TRUE(one->accepts(d20));
    EXPECT_TRUE(one->accepts(d21));
    EXPECT_TRUE(one->accepts("-" + d21 + "000"));
    EXPECT_FALSE(one->accepts(d21 + "1"));
    EXPECT_FALSE(one->accepts("00"));
    EXPECT_FALSE(one->accepts("02000"));
    EXPECT_TRUE(one->accepts("0"));
  }
  EXPECT_TRUE(many.accepts("2000." + std::string(30, '0')));
  EXPECT_FALSE(many.accepts("2000."));
  EXPECT_FALSE(whole.accepts("2000.0"));
}

// Beyond 500 remainders, of numbers that are no multiples of two steps; and of two steps of which one alone is too
// long.
TEST(SchemaNumbers, ManyRemaindersOfEveryNumberOfDigits) {
  for (const char* type : {"integer", "number"}) {
    TextMatcher neither(schema_of(fmt::format(
        R"({{"type":"{}","allOf":[{{"not":{{"type":"number","multipleOf":30}}}},{{"not":{{"type":"number","multipleOf":29}}}}]}})",
        type)));
    ASSERT_TRUE(neither.ok()) << neither.error.message;
    for (int n = -100; n <= 1000; ++n)
      ASSERT_EQ(neither.accepts(std::to_string(n)), n % 30 != 0 && n % 29 != 0) << type << " " << n;
    EXPECT_EQ(neither.accepts("29.5"), type == std::string("number"));
    EXPECT_FALSE(neither.accepts("29.0"));
  }
  TextMatcher both(schema_of(R"({"type":"integer","allOf":[{"multipleOf":15000},{"multipleOf":5000}]})"));
  ASSERT_TRUE(both.ok()) << both.error.message;
  for (const char* in : {"0", "15000", "-30000", "150000"}) EXPECT_TRUE(both.accepts(in)) << in;
  for (const char* out : {"5000", "10000", "1", "-20000"}) EXPECT_FALSE(both.accepts(out)) << out;
}

TEST(SchemaNumbers, ZerosBehindThePointKeepAMultiple) {
  const std::pair<const char*, double> steps[] = {{"1", 1},     {"3", 3},     {"10", 10},
                                                  {"0.5", 0.5}, {"1.5", 1.5}, {"0.25", 0.25}};
  for (const auto& [step, value] : steps) {
    TextMatcher matcher(schema_of(fmt::format(R"({{"type":"number","multipleOf":{}}})", step)));
    TextMatcher turned(schema_of(fmt::format(R"({{"type":"number","not":{{"multipleOf":{}}}}})", step)));
    ASSERT_TRUE(matcher.ok() && turned.ok());
    for (int whole = 0; whole <= 12; ++whole)
      for (const char* fraction :
           {"", ".0", ".1", ".10", ".00", ".01", ".5", ".50", ".500", ".05", ".25", ".250", ".251"}) {
        const std::string text = std::to_string(whole) + fraction;
        const double quotient = std::stod(text) / value;
        const bool divides = std::fabs(quotient - std::round(quotient)) < 1e-9;
        ASSERT_EQ(matcher.accepts(text), divides) << text << " / " << step;
        ASSERT_EQ(turned.accepts(text), !divides) << text << " / " << step;
      }
    for (const char* no : {"", "-", ".", "1.", "-.5", ".5"}) {
      EXPECT_FALSE(matcher.accepts(no)) << no << " / " << step;
      EXPECT_FALSE(turned.accepts(no)) << no << " / " << step;
    }
  }
}

TEST(SchemaNumbers, JsonDecimals) {
  const auto text = [](const char* json) {
    const auto d = to_decimal(SchemaJson::parse(json));
    return d ? std::string(d->negative ? "-" : "") + d->whole + "." + d->fraction : "none";
  };
  EXPECT_EQ(text("0"), "0.");
  EXPECT_EQ(text("-0.0"), "-0.");
  EXPECT_EQ(text("12"), "12.");
  EXPECT_EQ(text("-12.50"), "-12.5");
  EXPECT_EQ(text("1e3"), "1000.");
  EXPECT_EQ(text("1.25e20"), "125000000000000000000.");
  EXPECT_EQ(text("1e-5"), "0.00001");
  EXPECT_EQ(text("1.5e-7"), "0.00000015");
  EXPECT_EQ(text("123.456"), "123.456");
  EXPECT_EQ(text("0.1"), "0.1");
  EXPECT_EQ(text("100"), "100.");
  EXPECT_EQ(text("18446744073709551615"), "18446744073709551615.");
  EXPECT_EQ(text("\"1\""), "none");
  EXPECT_EQ(text("true"), "none");
}

TEST(SchemaNumbers, TooLongMultiples) {
  const auto error = [](const char* step) {
    const TextMatcher matcher(schema_of(
        std::string(R"({"properties":{"n":{"type":"number","minimum":0,"maximum":9,"multipleOf":)") + step + "}}}"));
    return matcher.ok() ? std::string() : matcher.error.message;
  };
  const std::string refused = "/properties/n: multipleOf has too many digits";
  EXPECT_EQ(error("10000"), "");
  EXPECT_EQ(error("10001"), refused);
  EXPECT_EQ(error("666.6"), "");
  EXPECT_EQ(error("666.7"), refused);
  EXPECT_EQ(error("0.3333"), "");
  EXPECT_EQ(error("0.3334"), refused);
  EXPECT_EQ(error("1e25"), refused);
  EXPECT_EQ(error("1e80"), refused) << "whose digits fit no integer";
}

}  // namespace
}  // namespace millrace::testing
