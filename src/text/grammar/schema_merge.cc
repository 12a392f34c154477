#include "text/grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/grammar/pattern.h"
#include "text/unicode.h"

namespace millrace {
namespace {

class Merger {
 public:
  Merger(const SchemaDocument& document, GrammarNotes& notes) : document_(document), notes_(notes) {}

  Result<MergedSchema> merge(const FlatSchema& parts) {
    if (!parts.empty()) out_.path = document_.path(*parts.front().schema);
    for (const SchemaPart& part : parts) {
      if (part.reference) continue;
      at_ = part.schema;
      for (const auto& [key, value] : at_->items()) MILLRACE_TRY_VOID(keyword(key, value));
    }
    out_.numbers.integer = (out_.types & kFraction) == 0;
    out_.numbers.fraction = (out_.types & kInteger) == 0;
    for (const SchemaJson& value : out_.excluded)
      if (auto decimal = to_decimal(value))
        out_.numbers.excluded.push_back(*decimal);
      else if (value.is_string())
        out_.strings.excluded.push_back(value.get<std::string>());
    return std::move(out_);
  }

 private:
  std::string place(std::string_view key) const { return fmt::format("JSON schema: {}/{}", document_.path(*at_), key); }
  Error bad(std::string_view key, std::string_view why) const {
    return Error::user(fmt::format("{}: {}", place(key), why));
  }

  Result<uint32_t> count(std::string_view key, const SchemaJson& value) const {
    const double number = value.is_number() ? value.get<double>() : -1;
    if (number < 0 || number != std::floor(number)) return bad(key, "must be a whole number, 0 or more");
    return number >= kNoLimit ? kNoLimit : static_cast<uint32_t>(number);
  }
  Result<void> raise(std::string_view key, const SchemaJson& value, uint32_t& field) const {
    MILLRACE_TRY(const uint32_t number, count(key, value));
    if (number == kNoLimit) return Error::unsupported(fmt::format("{}: is too large", place(key)));
    field = std::max(field, number);
    return {};
  }
  Result<void> lower(std::string_view key, const SchemaJson& value, uint32_t& field) const {
    MILLRACE_TRY(const uint32_t number, count(key, value));
    field = std::min(field, number);
    return {};
  }

  Result<void> type(const SchemaJson& value) {
    uint8_t types = 0;
    for (const SchemaJson& name : value.is_array() ? value : SchemaJson::array({value})) {
      const uint8_t bits = type_bits(name);
      if (bits == 0) return bad("type", fmt::format("{} is not a type", name.dump()));
      types |= bits;
    }
    out_.types &= types;
    return {};
  }

  Result<void> values(std::string_view key, const SchemaJson& value) {
    if (key == "enum" && !value.is_array()) return bad(key, "must be a list");
    std::vector<SchemaJson> list;
    if (key == "const")
      list = {value};
    else
      list.assign(value.begin(), value.end());
    if (!out_.values) {
      out_.values = std::move(list);
      return {};
    }
    std::erase_if(*out_.values, [&](const SchemaJson& v) { return std::ranges::find(list, v) == list.end(); });
    return {};
  }

  Result<void> bound(const std::string& key, const SchemaJson& value) {
    const bool least = key == "minimum" || key == "exclusiveMinimum";
    if (value.is_boolean() && key.starts_with("exclusive")) return {};  // draft 4: modifies minimum or maximum
    const auto decimal = to_decimal(value);
    if (!decimal) return bad(key, "must be a number");
    bool exclusive = key.starts_with("exclusive");
    if (!exclusive) {
      auto flag = at_->find(least ? "exclusiveMinimum" : "exclusiveMaximum");
      exclusive = flag != at_->end() && *flag == true;
    }
    (least ? out_.numbers.least : out_.numbers.most).push_back({*decimal, exclusive});
    return {};
  }

  Result<void> text(const std::string& key, const SchemaJson& value) {
    if (!value.is_string()) return bad(key, "must be a string");
    const std::string content = value.get<std::string>();
    if (key == "pattern")
      out_.strings.patterns.push_back(content);
    else if (key == kNotPattern)
      out_.strings.not_patterns.push_back(content);
    else if (!format_pattern(content).empty())
      out_.strings.formats.push_back(content);
    else if (standard_format(content))
      notes_.weaken(fmt::format("{}/format '{}' is not enforced", document_.path(*at_), content));
    else
      notes_.ignore(fmt::format("{}/format '{}' is not a JSON Schema format and is ignored, as the standard specifies",
                                document_.path(*at_), content));
    return {};
  }

  Result<void> required(const SchemaJson& value) {
    if (value.is_boolean()) return {};  // draft 3
    if (!value.is_array()) return bad("required", "must be a list of names");
    for (const SchemaJson& name : value) {
      if (!name.is_string()) return bad("required", "must be a list of names");
      if (std::ranges::find(out_.required, name.get<std::string>()) == out_.required.end())
        out_.required.push_back(name.get<std::string>());
    }
    return {};
  }

  Result<void> keyword(const std::string& key, const SchemaJson& value) {
    // Handled where lists, objects and combinations are built: schema_*.cc.
    static constexpr std::string_view kElsewhere[] = {"$ref",
                                                      "allOf",
                                                      "anyOf",
                                                      "oneOf",
                                                      "not",
                                                      "if",
                                                      "then",
                                                      "else",
                                                      "dependentRequired",
                                                      "dependentSchemas",
                                                      "dependencies",
                                                      "properties",
                                                      "patternProperties",
                                                      "additionalProperties",
                                                      "propertyNames",
                                                      "unevaluatedProperties",
                                                      "items",
                                                      "prefixItems",
                                                      "additionalItems",
                                                      "unevaluatedItems",
                                                      "contains",
                                                      "minContains",
                                                      "maxContains",
                                                      "$dynamicRef",
                                                      kIs,
                                                      kNot,
                                                      kSomeItem,
                                                      kSomeProperty,
                                                      kOtherProperty};
    if (std::ranges::find(kElsewhere, key) != std::end(kElsewhere) || is_annotation(key)) return {};
    if (key == "type") return type(value);
    if (key == "enum" || key == "const") return values(key, value);
    if (key == kNotEnum) {
      if (!value.is_array()) return bad("enum", "must be a list");
      out_.excluded.insert(out_.excluded.end(), value.begin(), value.end());
      return {};
    }
    if (key == kNotInteger) {
      out_.types &= static_cast<uint8_t>(~kInteger);
      return {};
    }
    if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" || key == "exclusiveMaximum")
      return bound(key, value);
    if (key == "multipleOf" || key == kNotMultipleOf) {
      const auto decimal = to_decimal(value);
      if (!decimal || decimal->negative || decimal->zero()) return bad("multipleOf", "must be a number above 0");
      (key == kNotMultipleOf ? out_.numbers.not_multiple_of : out_.numbers.multiple_of).push_back(*decimal);
      return {};
    }
    if (key == "pattern" || key == "format" || key == kNotPattern) return text(key, value);
    if (key == "minLength") return raise(key, value, out_.strings.min_length);
    if (key == "maxLength") return lower(key, value, out_.strings.max_length);
    if (key == "minItems") return raise(key, value, out_.min_items);
    if (key == "maxItems") return lower(key, value, out_.max_items);
    if (key == "minProperties") return raise(key, value, out_.min_properties);
    if (key == "maxProperties") return lower(key, value, out_.max_properties);
    if (key == "required") return required(value);
    if (key == "uniqueItems") {
      out_.unique_items |= value == true;
      return {};
    }
    if (key == "$recursiveRef") return Error::unsupported(fmt::format("{}: is not supported", place(key)));
    notes_.ignore(fmt::format("{}/{} is not a JSON Schema keyword and is ignored, as the standard specifies",
                              document_.path(*at_), key));
    return {};
  }

  const SchemaDocument& document_;
  GrammarNotes& notes_;
  MergedSchema out_;
  const SchemaJson* at_ = nullptr;
};

bool in_bounds(const NumberBounds& bounds, double value) {
  const auto number = [](const Decimal& d) {
    return std::stod((d.negative ? "-" : "") + d.whole + "." + d.fraction + "0");
  };
  for (const auto& b : bounds.least)
    if (value < number(b.value) || (b.exclusive && value == number(b.value))) return false;
  for (const auto& b : bounds.most)
    if (value > number(b.value) || (b.exclusive && value == number(b.value))) return false;
  const auto divides = [&](const Decimal& of) {
    const double quotient = value / number(of);
    return std::fabs(quotient - std::round(quotient)) <= 1e-9;
  };
  return std::ranges::all_of(bounds.multiple_of, divides) && std::ranges::none_of(bounds.not_multiple_of, divides);
}

uint32_t code_points(std::string_view text) {
  uint32_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode_utf8(text, at).length) ++count;
  return count;
}

}  // namespace

Result<MergedSchema> merge_schema(const FlatSchema& parts, const SchemaDocument& document, GrammarNotes& notes) {
  return Merger(document, notes).merge(parts);
}

Result<bool> allows_value(const MergedSchema& schema, const SchemaJson& value, const GrammarLimits& limits) {
  if (std::ranges::find(schema.excluded, value) != schema.excluded.end()) return false;
  const auto is = [&](uint8_t type) { return (schema.types & type) != 0; };
  if (value.is_null()) return is(kNull);
  if (value.is_boolean()) return is(kBoolean);
  if (value.is_number()) {
    const double number = value.get<double>();
    return is(number == std::floor(number) ? kInteger : kFraction) && in_bounds(schema.numbers, number);
  }
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const uint32_t length = code_points(text);
    if (!is(kString) || length < schema.strings.min_length || length > schema.strings.max_length) return false;
    if (schema.strings.lengths_only()) return true;
    if (!schema.string_automaton) {
      MILLRACE_TRY(Dfa dfa, string_dfa(schema.strings, limits, schema.path));
      schema.string_automaton = std::make_shared<const Dfa>(std::move(dfa));
    }
    return schema.string_automaton->accepts(spell_json(text));
  }
  if (!is(value.is_array() ? kArray : kObject)) return false;
  const bool bounded = value.is_array() ? value.size() < schema.min_items || value.size() > schema.max_items
                                        : value.size() < schema.min_properties || value.size() > schema.max_properties;
  return !bounded;
}

}  // namespace millrace
