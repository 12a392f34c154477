// Negation of schemas: one alternative for each keyword that may be violated, again expressed in keywords. Subschemas
// are negated lazily, when they are flattened, so that recursive schemas terminate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "text/grammar/schema_flatten.h"

namespace millrace {

const SchemaJson& SchemaFlattener::not_of(const SchemaJson& schema) {
  return document_.adopt({{kNot, document_.link(schema)}}, schema);
}

SchemaJson constant_schema(const SchemaJson& value) {
  if (value.is_object()) {
    SchemaJson names = SchemaJson::array(), properties = SchemaJson::object();
    for (const auto& [key, member] : value.items()) {
      names.push_back(key);
      properties[key] = {{"const", member}};
    }
    return {{"type", "object"},
            {"required", std::move(names)},
            {"properties", std::move(properties)},
            {"additionalProperties", false}};
  }
  SchemaJson items = SchemaJson::array();
  for (const SchemaJson& item : value) items.push_back({{"const", item}});
  return {{"type", "array"}, {"minItems", value.size()}, {"maxItems", value.size()}, {"prefixItems", std::move(items)}};
}

// Errors: unsupported, if the negation cannot be expressed exactly.
Result<SchemaFlattener::Options> SchemaFlattener::negate(const SchemaJson& schema) {
  if (auto found = negated_.find(&schema); found != negated_.end()) return found->second;
  Options options;
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) options.push_back({});
  } else if (!schema.is_object()) {
    return Error::user(
        fmt::format("JSON schema: {}: a schema must be an object, true or false", document_.path(schema)));
  } else if (auto reference = schema.find("$ref"); reference != schema.end() && document_.draft_before_2019()) {
    MILLRACE_TRY_VOID(negate_keyword(schema, "$ref", *reference, options));
  } else {
    for (const auto& [key, value] : schema.items()) MILLRACE_TRY_VOID(negate_keyword(schema, key, value, options));
  }
  negated_[&schema] = options;
  return options;
}

Result<void> SchemaFlattener::negate_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                                             Options& out) {
  const auto refuse = [&] {
    return Error::unsupported(
        fmt::format("JSON schema: {}: 'not', 'if' or 'oneOf' over '{}' is not supported", document_.path(schema), key));
  };
  if (is_annotation(key) || key == "format") return {};
  if (key == "$ref" && value.is_string()) {
    MILLRACE_TRY(const SchemaJson* target, document_.resolve(value.get<std::string>(), schema));
    out.push_back({&not_of(*target)});
    return {};
  }
  if (key == "$dynamicRef" && value.is_string()) {
    MILLRACE_TRY(const SchemaJson* target, document_.resolve_dynamic(value.get<std::string>(), schema));
    out.push_back({&not_of(*target)});
    return {};
  }
  if ((key == "uniqueItems" && value == true) ||
      ((key == "unevaluatedProperties" || key == "unevaluatedItems") && value != true) || key == "$recursiveRef")
    return refuse();
  for (auto part : {&SchemaFlattener::negate_bound, &SchemaFlattener::negate_combination,
                    &SchemaFlattener::negate_object, &SchemaFlattener::negate_array}) {
    MILLRACE_TRY(const bool done, (this->*part)(schema, key, value, out));
    if (done) return {};
  }
  return {};  // not a keyword, or handled with a related one: always satisfied
}

// Keywords about scalars. Returns true if `key` is one.
Result<bool> SchemaFlattener::negate_bound(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                                           Options& out) {
  const auto add = [&](SchemaJson made) { out.push_back({&document_.adopt(std::move(made), schema)}); };
  if (key == "type") {
    SchemaJson others = SchemaJson::array();
    const auto named = [&](std::string_view name) {
      return value == name ||
             (value.is_array() && std::ranges::any_of(value, [&](const SchemaJson& v) { return v == name; }));
    };
    for (const char* name : {"null", "boolean", "string", "array", "object"})
      if (!named(name)) others.push_back(name);
    if (!named("number") && !named("integer")) others.push_back("number");
    if (!others.empty()) add({{"type", others}});
    if (!named("number") && named("integer")) add({{"type", "number"}, {kNotInteger, true}});
    return true;
  }
  if (key == "const" || (key == "enum" && value.is_array())) {
    for (SchemaConjunction& way : negate_values(schema, key == "const" ? SchemaJson::array({value}) : value))
      out.push_back(std::move(way));
    return true;
  }
  if (key == "pattern") {
    add({{"type", "string"}, {kNotPattern, value}});
    return true;
  }
  if (key == "multipleOf") {
    add({{"type", "number"}, {kNotMultipleOf, value}});
    return true;
  }
  for (const auto& [bound, strict, turned, turned_strict] :
       {std::tuple{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"},
        {"maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"}}) {
    if (!value.is_number()) continue;
    const auto flag = schema.find(strict);
    const bool excluded = flag != schema.end() && *flag == true;  // draft 4: modifies minimum or maximum
    if (key == bound)
      add({{"type", "number"}, {excluded ? turned : turned_strict, value}});
    else if (key == strict)
      add({{"type", "number"}, {turned, value}});
    else
      continue;
    return true;
  }
  for (const auto& [least, most, type] : {std::tuple{"minLength", "maxLength", "string"},
                                          {"minItems", "maxItems", "array"},
                                          {"minProperties", "maxProperties", "object"}}) {
    if ((key != least && key != most) || !value.is_number() || value.get<double>() < 0) continue;
    if (value.get<double>() > 4e9) {  // longer than any text
      if (key == least) add({{"type", type}});
      return true;
    }
    const auto bound = static_cast<uint64_t>(value.get<double>());
    if (key == most)
      add({{"type", type}, {least, bound + 1}});
    else if (bound > 0)
      add({{"type", type}, {most, bound - 1}});
    return true;
  }
  return false;
}

// Excludes all of the values: scalars directly, lists and objects as negated schemas.
SchemaFlattener::Options SchemaFlattener::negate_values(const SchemaJson& schema, const SchemaJson& values) {
  SchemaJson scalars = SchemaJson::array();
  SchemaConjunction all;
  for (const SchemaJson& value : values) {
    if (value.is_structured())
      all.push_back(&not_of(document_.adopt(constant_schema(value), schema)));
    else
      scalars.push_back(value);
  }
  if (!scalars.empty()) all.push_back(&document_.adopt({{kNotEnum, std::move(scalars)}}, schema));
  return {std::move(all)};
}

Result<bool> SchemaFlattener::negate_combination(const SchemaJson& schema, const std::string& key,
                                                 const SchemaJson& value, Options& out) {
  if (key == "not") {
    out.push_back({&is(value)});
  } else if (key == kNot || key == kIs) {
    const SchemaJson& linked = document_.linked(value);
    out.push_back({key == kNot ? &is(linked) : &not_of(linked)});
  } else if (key == "allOf" && value.is_array()) {
    for (const SchemaJson& part : value) out.push_back({&not_of(part)});
  } else if ((key == "anyOf" || key == "oneOf") && value.is_array()) {
    SchemaConjunction none;
    for (const SchemaJson& part : value) none.push_back(&not_of(part));
    out.push_back(std::move(none));
    if (key == "anyOf") return true;
    for (size_t i = 0; i < value.size(); ++i)  // or more than one of them matches
      for (size_t j = i + 1; j < value.size(); ++j)
        if (!apart(value[i], value[j])) out.push_back({&is(value[i]), &is(value[j])});
  } else if (key == "if") {
    for (const char* branch : {"then", "else"}) {
      const auto found = schema.find(branch);
      if (found == schema.end()) continue;
      out.push_back({std::string_view(branch) == "then" ? &is(value) : &not_of(value), &not_of(*found)});
    }
  } else {
    return false;
  }
  return true;
}

Result<bool> SchemaFlattener::negate_object(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                                            Options& out) {
  const auto add = [&](SchemaJson made) {
    made["type"] = "object";
    out.push_back({&document_.adopt(std::move(made), schema)});
  };
  const auto some = [&](SchemaJson demand, const SchemaJson& inner) {  // any value violates `false`
    if (inner != false) demand["value"] = document_.link(not_of(inner));
    add({{kSomeProperty, std::move(demand)}});
  };
  if (key == "required" && value.is_array()) {
    for (const SchemaJson& name : value)
      if (name.is_string()) add({{"properties", {{name.get<std::string>(), false}}}});
  } else if (key == "properties" && value.is_object()) {
    for (const auto& [name, inner] : value.items())
      if (inner != true)
        add({{"required", SchemaJson::array({name})}, {"properties", {{name, {{kNot, document_.link(inner)}}}}}});
  } else if (key == "patternProperties" && value.is_object()) {
    for (const auto& [pattern, inner] : value.items())
      if (inner != true) some({{"pattern", pattern}}, inner);
  } else if (key == "additionalProperties") {
    if (value == true) return true;
    SchemaJson except = SchemaJson::array(), patterns = SchemaJson::array();
    if (auto named = schema.find("properties"); named != schema.end() && named->is_object())
      for (const auto& [name, inner] : named->items()) except.push_back(name);
    if (auto named = schema.find("patternProperties"); named != schema.end() && named->is_object())
      for (const auto& [name, inner] : named->items()) patterns.push_back(name);
    some({{"except", std::move(except)}, {"exceptPatterns", std::move(patterns)}}, value);
  } else if (key == "propertyNames") {
    if (value != true) add({{kSomeProperty, {{"names", document_.link(not_of(value))}}}});
  } else if ((key == "dependentRequired" || key == "dependentSchemas" || key == "dependencies") && value.is_object()) {
    for (const auto& [name, needed] : value.items()) {
      const SchemaJson& present =
          document_.adopt({{"type", "object"}, {"required", SchemaJson::array({name})}}, schema);
      const SchemaJson& then = needed.is_array() ? document_.adopt({{"required", needed}}, schema) : needed;
      out.push_back({&present, &not_of(then)});
    }
  } else {
    return false;
  }
  return true;
}

Result<bool> SchemaFlattener::negate_array(const SchemaJson& schema, const std::string& key, const SchemaJson& value,
                                           Options& out) {
  const auto add = [&](SchemaJson made) {
    made["type"] = "array";
    out.push_back({&document_.adopt(std::move(made), schema)});
  };
  const auto some_item = [&](size_t from, const SchemaJson& allowed) {
    if (allowed != true) add({{kSomeItem, {{"from", from}, {"value", document_.link(not_of(allowed))}}}});
  };
  const auto prefix = schema.find("prefixItems"), items = schema.find("items");
  if (key == "prefixItems" || (key == "items" && value.is_array())) {
    if (!value.is_array()) return true;
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] == true) continue;
      SchemaJson places = SchemaJson::array();
      for (size_t j = 0; j < i; ++j) places.push_back(true);
      places.push_back({{kNot, document_.link(value[i])}});
      add({{"minItems", i + 1}, {"prefixItems", std::move(places)}});
    }
  } else if (key == "items") {
    some_item(prefix != schema.end() && prefix->is_array() ? prefix->size() : 0, value);
  } else if (key == "additionalItems") {
    if (items != schema.end() && items->is_array()) some_item(items->size(), value);
  } else if (key == "contains") {
    const auto bound = [&](const char* name) -> std::optional<uint64_t> {  // 2.0 is 2
      auto found = schema.find(name);
      if (found == schema.end() || document_.draft_before_2019() || !found->is_number()) return std::nullopt;
      const double count = found->get<double>();
      if (count < 0 || count > 4e9 || count != std::floor(count)) return std::nullopt;
      return static_cast<uint64_t>(count);
    };
    const std::optional<uint64_t> least = bound("minContains"), most = bound("maxContains");
    const SchemaJson wanted = {{kIs, document_.link(value)}};
    if (!least || *least == 1)
      add({{"items", {{kNot, document_.link(value)}}}});
    else if (*least > 1)
      add({{"contains", wanted}, {"minContains", 0}, {"maxContains", *least - 1}});
    if (most) add({{"contains", wanted}, {"minContains", *most + 1}});
  } else {
    return false;
  }
  return true;
}

}  // namespace millrace
