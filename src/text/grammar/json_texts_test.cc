// Every text of a JSON string and number against the plain definition; and that each rule is written once.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "text/grammar/json_rules.h"
#include "text/grammar/parse_table.h"

namespace millrace {
namespace {

using MakeJson = std::function<ExprId(JsonRules&)>;

std::unique_ptr<ParseTable> json_table(const MakeJson& make) {
  GrammarSpec spec;
  JsonRules rules(spec);
  const ExprId body = make(rules);
  spec.root = spec.add_rule("root");
  spec.set_body(spec.root, body);
  return std::make_unique<ParseTable>(std::make_shared<const Grammar>(Grammar::create(spec).value()));
}

bool reads(ParseTable& table, std::string_view text) {
  SetId set = table.begin();
  for (const char c : text) set = table.step(set, static_cast<uint8_t>(c));
  return set != kDead && table.complete(set);
}

TEST(JsonTexts, EachPartIsWrittenOnce) {
  GrammarSpec spec;
  JsonRules rules(spec);
  rules.string(0, 5);
  rules.string(2, kNoLimit);
  EXPECT_EQ(spec.rules().size(), 1u);
  const ExprId space = rules.space(), integer = rules.integer(), number = rules.number(), tail = rules.key_tail();
  const size_t size = spec.size();
  EXPECT_EQ(rules.space(), space);
  EXPECT_EQ(rules.integer(), integer);
  EXPECT_EQ(rules.number(), number);
  EXPECT_EQ(rules.key_tail(), tail);
  EXPECT_EQ(spec.size(), size);
  rules.any_value();
  const size_t with_values = spec.rules().size();
  rules.any_object();
  rules.any_array();
  rules.any_value();
  EXPECT_EQ(spec.rules().size(), with_values);
  EXPECT_EQ(with_values, 4u) << "string, key, object, array";
}

// The first and last second byte after each first byte of UTF-8, and how many bytes there are.
struct Utf8Lead {
  int first = 0x80, last = 0xBF, length = 0;
};
Utf8Lead lead(int byte) {
  if (byte < 0x80) return {0, 0, 1};
  if (byte < 0xC2 || byte > 0xF4) return {};
  if (byte < 0xE0) return {0x80, 0xBF, 2};
  if (byte < 0xF0) return {byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF, 3};
  return {byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF, 4};
}

TEST(JsonTexts, StringsAreOfUtf8) {
  const auto table = json_table([](JsonRules& rules) { return rules.string(1, 1); });
  for (int a = 0; a < 256; ++a) {
    const Utf8Lead of = lead(a);
    const bool plain = of.length == 1 && a >= 0x20 && a != '"' && a != '\\';
    const std::string one = std::string("\"") + static_cast<char>(a);
    EXPECT_EQ(reads(*table, one + "\""), plain) << a;
    for (int b = 0; b < 256; ++b) {
      const std::string two = one + static_cast<char>(b);
      const bool follows = of.length > 1 && b >= of.first && b <= of.last;
      if (a == '\\') continue;
      EXPECT_EQ(reads(*table, two + "\""), follows && of.length == 2) << a << " " << b;
      if (of.length < 3) continue;
      for (const int c : {0x7F, 0x80, 0xBF, 0xC0}) {
        const bool tail = follows && c >= 0x80 && c <= 0xBF;
        const std::string three = two + static_cast<char>(c);
        EXPECT_EQ(reads(*table, three + "\""), tail && of.length == 3) << a << " " << b << " " << c;
        for (const int d : {0x7F, 0x80, 0xBF, 0xC0})
          EXPECT_EQ(reads(*table, three + static_cast<char>(d) + "\""),
                    tail && of.length == 4 && d >= 0x80 && d <= 0xBF)
              << a << " " << b << " " << c << " " << d;
      }
    }
  }
}

TEST(JsonTexts, EscapesOfStrings) {
  const auto table = json_table([](JsonRules& rules) { return rules.string(1, 1); });
  const auto is = [&](const std::string& inside) { return reads(*table, "\"" + inside + "\""); };
  for (int c = 0; c < 256; ++c)
    EXPECT_EQ(is(std::string("\\") + static_cast<char>(c)), c != 0 && std::strchr("\"\\/bfnrt", c) != nullptr) << c;
  for (const char* high = "0123456789abcdefABCDEF"; *high; ++high)
    for (const char* low = "0123456789abcdefABCDEF"; *low; ++low) {
      const std::string unit = std::string("\\u") + *high + *low + "5E";
      const bool d = *high == 'd' || *high == 'D';
      const bool first = d && std::strchr("89abAB", *low), second = d && std::strchr("cdefCDEF", *low);
      EXPECT_EQ(is(unit), !first && !second) << unit;
      EXPECT_EQ(is(unit + "\\uDc00"), first) << unit;
      EXPECT_EQ(is(std::string("\\ud8Ff") + unit), second) << unit;
    }
  for (const char* no : {"\\u", "\\u12", "\\u123", "\\u123g", "\\ud800", "\\ud800\\n", "\\ud800x", "\\udc00\\ud800"})
    EXPECT_FALSE(is(no)) << no;
}

TEST(JsonTexts, Numbers) {
  const auto table = json_table([](JsonRules& rules) { return rules.number(); });
  const std::string twenty(20, '7');
  for (const std::string& text :
       {std::string("0"), std::string("-0"), std::string("7"), std::string("10"), "-" + twenty, "0." + twenty,
        twenty + "." + twenty + "e-99", std::string("1e5"), std::string("1E05"), std::string("1e+9"),
        std::string("0e0"), std::string("1.0E-1"), std::string("1.05e12")})
    EXPECT_TRUE(reads(*table, text)) << text;
  for (const std::string& text :
       {std::string(""), std::string("-"), std::string("00"), std::string("01"), std::string("+1"), std::string("1."),
        std::string(".5"), std::string("1e"), std::string("1e+"), std::string("1e123"), std::string("1e+-1"),
        "7" + twenty, "0.7" + twenty, std::string("--1"), std::string("1.e5"), std::string("1e5.0")})
    EXPECT_FALSE(reads(*table, text)) << text;
  const auto integers = json_table([](JsonRules& rules) { return rules.integer(); });
  for (const std::string& text : {std::string("0"), std::string("-0"), std::string("-10"), twenty})
    EXPECT_TRUE(reads(*integers, text)) << text;
  for (const std::string& text : {std::string("01"), std::string("1.0"), std::string("1e5"), "1" + twenty})
    EXPECT_FALSE(reads(*integers, text)) << text;
}

// A whole number may be written without its point; from 9e15 on it is written as the schema has it.
TEST(JsonTexts, ConstantsOfNumbers) {
  struct {
    const char* value;
    std::vector<const char*> in, out;
  } const texts[] = {{"2.0", {"2.0", "2"}, {"2.", "2.00", "3"}},
                     {"2", {"2"}, {"2.0"}},
                     {"2.5", {"2.5"}, {"2", "3"}},
                     {"-3.0", {"-3.0", "-3"}, {"3", "-3."}},
                     {"1e3", {"1000.0", "1000"}, {"1e3"}},
                     {"8e15", {"8e+15", "8000000000000000"}, {"8000000000000001"}},
                     {"9e15", {"9e+15"}, {"9000000000000000"}},
                     {"-9e15", {"-9e+15"}, {"-9000000000000000"}},
                     {"1e16", {"1e+16"}, {"10000000000000000"}}};
  for (const auto& [value, in, out] : texts) {
    const auto table = json_table([&](JsonRules& rules) { return rules.literal(SchemaJson::parse(value)); });
    for (const char* text : in) EXPECT_TRUE(reads(*table, text)) << value << " as " << text;
    for (const char* text : out) EXPECT_FALSE(reads(*table, text)) << value << " as " << text;
  }
}

TEST(JsonTexts, WhiteSpace) {
  const auto table = json_table([](JsonRules& rules) { return rules.space(); });
  for (const std::string& text : {std::string(""), std::string(" "), std::string("\n"), std::string("\n \t "),
                                  "\n" + std::string(24, ' '), "\n" + std::string(24, '\t')})
    EXPECT_TRUE(reads(*table, text));
  for (const std::string& text :
       {std::string("  "), std::string("\t"), std::string(" \n"), std::string("\n\n"), "\n" + std::string(25, ' ')})
    EXPECT_FALSE(reads(*table, text));
}

}  // namespace
}  // namespace millrace
