#include "text/grammar/json_rules.h"

#include <fmt/format.h>

#include <cmath>

namespace millrace {
namespace {

constexpr uint32_t kMaxIndent = 24;
constexpr uint32_t kMaxDigits = 20;

}  // namespace

std::string spell_json(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
        else
          out += c;
    }
  }
  return out;
}

ExprId JsonRules::space() {
  if (space_ >= 0) return space_;
  const ExprId indent = spec_.repeat(spec_.byte_set(" \t"), 0, kMaxIndent);
  space_ = spec_.optional(spec_.choice({spec_.bytes(" "), spec_.sequence({spec_.bytes("\n"), indent})}));
  return space_;
}

// The rest of a string after its opening quote. Every character ticks at its first byte, so that no character can begin
// without room for it.
RuleId JsonRules::string_rule() {
  if (string_ >= 0) return string_;
  string_ = spec_.add_rule("string");
  const auto range = [&](uint8_t first, uint8_t last) {
    std::string members;
    for (int b = first; b <= last; ++b)
      if (b != '"' && b != '\\') members += static_cast<char>(b);
    return spec_.byte_set(members);
  };
  const ExprId tick = spec_.tick(), tail = range(0x80, 0xBF);
  const auto raw = [&](std::vector<ExprId> bytes) {
    bytes.insert(bytes.begin() + 1, tick);
    return spec_.sequence(std::move(bytes));
  };
  const ExprId hex = spec_.byte_set("0123456789abcdefABCDEF");
  const ExprId two = spec_.repeat(hex, 2, 2), three = spec_.repeat(hex, 3, 3);
  const ExprId low = spec_.sequence({spec_.bytes("\\u"), spec_.byte_set("dD"), spec_.byte_set("cdefCDEF"), two});
  const ExprId units = spec_.choice({spec_.sequence({spec_.byte_set("0123456789abcefABCEF"), three}),
                                     spec_.sequence({spec_.byte_set("dD"), spec_.byte_set("01234567"), two}),
                                     spec_.sequence({spec_.byte_set("dD"), spec_.byte_set("89abAB"), two, low})});
  const ExprId escape =
      spec_.sequence({spec_.bytes("\\"), tick,
                      spec_.choice({spec_.byte_set("\"\\/bfnrt"), spec_.sequence({spec_.bytes("u"), units})})});
  const ExprId character = spec_.choice(
      {raw({range(0x20, 0x7F)}), raw({range(0xC2, 0xDF), tail}), raw({range(0xE0, 0xE0), range(0xA0, 0xBF), tail}),
       raw({range(0xE1, 0xEC), tail, tail}), raw({range(0xED, 0xED), range(0x80, 0x9F), tail}),
       raw({range(0xEE, 0xEF), tail, tail}), raw({range(0xF0, 0xF0), range(0x90, 0xBF), tail, tail}),
       raw({range(0xF1, 0xF3), tail, tail, tail}), raw({range(0xF4, 0xF4), range(0x80, 0x8F), tail, tail}), escape});
  spec_.set_body(string_, spec_.sequence({spec_.repeat(character, 0, kNoLimit), spec_.bytes("\"")}));
  return string_;
}

ExprId JsonRules::string(uint32_t min_length, uint32_t max_length) {
  return spec_.sequence({spec_.bytes("\""), spec_.call(string_rule(), min_length, max_length)});
}

ExprId JsonRules::key_tail() {
  if (key_tail_ >= 0) return key_tail_;
  const RuleId rule = spec_.add_rule("key");
  spec_.set_body(
      rule, spec_.sequence({spec_.repeat(spec_.chars(any_char(), Spelling::json), 0, kNoLimit), spec_.bytes("\"")}));
  return key_tail_ = spec_.call(rule);
}

ExprId JsonRules::integer() {
  if (integer_ >= 0) return integer_;
  const ExprId digit = spec_.byte_set("0123456789");
  integer_ = spec_.sequence(
      {spec_.optional(spec_.bytes("-")),
       spec_.choice(
           {spec_.bytes("0"), spec_.sequence({spec_.byte_set("123456789"), spec_.repeat(digit, 0, kMaxDigits - 1)})})});
  return integer_;
}

ExprId JsonRules::number() {
  if (number_ >= 0) return number_;
  const ExprId digit = spec_.byte_set("0123456789");
  const ExprId fraction = spec_.sequence({spec_.bytes("."), spec_.repeat(digit, 1, kMaxDigits)});
  const ExprId exponent =
      spec_.sequence({spec_.byte_set("eE"), spec_.optional(spec_.byte_set("+-")), spec_.repeat(digit, 1, 2)});
  number_ = spec_.sequence({integer(), spec_.optional(fraction), spec_.optional(exponent)});
  return number_;
}

ExprId JsonRules::object_rest(const std::vector<ExprId>& members, std::string counts, bool filled) {
  return spec_.sequence({space(), spec_.list(comma(), members, std::move(counts), filled), space(), spec_.bytes("}")});
}

ExprId JsonRules::array_rest(ExprId items) { return spec_.sequence({space(), items, space(), spec_.bytes("]")}); }

ExprId JsonRules::any_object() {
  if (object_ < 0) {
    object_ = spec_.add_rule("object");
    const ExprId member = spec_.sequence({spec_.bytes("\""), key_tail(), spec_.bytes(":"), space(), any_value()});
    spec_.set_body(object_, object_rest({member}, "*"));
  }
  return spec_.sequence({spec_.bytes("{"), spec_.call(object_)});
}

ExprId JsonRules::any_array() {
  if (array_ < 0) {
    array_ = spec_.add_rule("array");
    spec_.set_body(array_, array_rest(spec_.list(comma(), {any_value()}, "*")));
  }
  return spec_.sequence({spec_.bytes("["), spec_.call(array_)});
}

ExprId JsonRules::any_value() {
  return spec_.choice({any_object(), any_array(), string(0, kNoLimit), number(), spec_.bytes("true"),
                       spec_.bytes("false"), spec_.bytes("null")});
}

ExprId JsonRules::literal(const SchemaJson& value) {
  if (const auto* text = value.get_ptr<const std::string*>()) return spec_.bytes("\"" + spell_json(*text) + "\"");
  if (value.is_number_float() && std::fabs(value.get<double>()) < 9e15 &&
      value.get<double>() == std::floor(value.get<double>()))
    return spec_.choice(
        {spec_.bytes(value.dump()), spec_.bytes(fmt::format("{:.0f}", value.get<double>()))});  // 2.0 and 2
  if (!value.is_structured()) return spec_.bytes(value.dump());
  std::vector<ExprId> members;
  for (const auto& [key, item] : value.items()) {
    const ExprId one = literal(item);
    members.push_back(value.is_object() ? spec_.sequence({spec_.bytes("\"" + spell_json(key) + "\":"), space(), one})
                                        : one);
  }
  const std::string counts(members.size(), '1');
  const ExprId list = spec_.list(comma(), members, counts);
  return value.is_object() ? spec_.sequence({spec_.bytes("{"), space(), list, space(), spec_.bytes("}")})
                           : spec_.sequence({spec_.bytes("["), array_rest(list)});
}

}  // namespace millrace
