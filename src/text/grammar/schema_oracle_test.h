// A plain validator for JSON Schema 2020-12 and the differences of draft 7. It applies each keyword as the standard
// defines it to one value. Tests compare compiled constraints with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "text/grammar/json_rules.h"

namespace millrace::testing {

class SchemaOracle {
 public:
  explicit SchemaOracle(const SchemaJson& root) : root_(root) {
    old_ = root.is_object() && root.value("$schema", std::string()).find("draft-07") != std::string::npos;
    find_anchors(root);
  }
  bool valid(const SchemaJson& value) const {
    Seen seen;
    return check(root_, value, seen);
  }
  static bool equal(const SchemaJson& a, const SchemaJson& b) { return sorted(a) == sorted(b); }

 private:
  struct Seen {  // properties and items evaluated by schemas that hold
    std::set<std::string> names;
    std::set<size_t> items;
    void add(const Seen& other) {
      names.insert(other.names.begin(), other.names.end());
      items.insert(other.items.begin(), other.items.end());
    }
  };
  static nlohmann::json sorted(const SchemaJson& value) { return nlohmann::json::parse(value.dump()); }

  void find_anchors(const SchemaJson& part) {
    if (part.is_object() && part.contains("$anchor")) anchors_[part["$anchor"].get<std::string>()] = &part;
    if (part.is_structured())
      for (const SchemaJson& inner : part) find_anchors(inner);
  }
  const SchemaJson& target(const std::string& reference) const {
    const std::string fragment = reference.substr(1);
    if (fragment.empty() || fragment.front() == '/') return root_.at(SchemaJson::json_pointer(fragment));
    return *anchors_.at(fragment);
  }

  bool check(const SchemaJson& schema, const SchemaJson& value, Seen& seen) const {
    if (schema.is_boolean()) return schema.get<bool>();
    Seen own;
    if (schema.contains("$ref")) {
      if (!check(target(schema["$ref"]), value, own)) return false;
      if (old_) return seen.add(own), true;
    }
    if (!scalar_keywords(schema, value) || !combinations(schema, value, own)) return false;
    if (value.is_array() && !array_keywords(schema, value, own)) return false;
    if (value.is_object() && !object_keywords(schema, value, own)) return false;
    seen.add(own);
    return true;
  }

  static bool is_type(const std::string& name, const SchemaJson& value) {
    if (name == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
    if (name == "number") return value.is_number();
    if (name == "null") return value.is_null();
    if (name == "boolean") return value.is_boolean();
    if (name == "string") return value.is_string();
    return name == "array" ? value.is_array() : value.is_object();
  }
  static size_t length(const std::string& text) {
    return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static const std::regex& compiled(const std::string& pattern) {
    static std::map<std::string, std::regex> known;
    return known.try_emplace(pattern, pattern).first->second;
  }
  static bool occurs(const std::string& pattern, const std::string& text) {
    return std::regex_search(text, compiled(pattern));
  }

  bool scalar_keywords(const SchemaJson& schema, const SchemaJson& value) const {
    const auto has = [&](const char* key) { return schema.contains(key); };
    const auto number = [&](const char* key) { return schema[key].get<double>(); };
    if (has("type")) {
      const SchemaJson& type = schema["type"];
      bool any = false;
      for (const SchemaJson& name : type.is_array() ? type : SchemaJson::array({type})) any |= is_type(name, value);
      if (!any) return false;
    }
    if (has("const") && !equal(schema["const"], value)) return false;
    if (has("enum")) {
      const auto same = [&](const SchemaJson& one) { return equal(one, value); };
      if (std::ranges::none_of(schema["enum"], same)) return false;
    }
    if (value.is_number()) {
      const double v = value.get<double>();
      if (has("minimum") && v < number("minimum")) return false;
      if (has("maximum") && v > number("maximum")) return false;
      if (has("exclusiveMinimum") && v <= number("exclusiveMinimum")) return false;
      if (has("exclusiveMaximum") && v >= number("exclusiveMaximum")) return false;
      if (has("multipleOf") && std::llround(v * 1e6) % std::llround(number("multipleOf") * 1e6) != 0) return false;
    }
    if (value.is_string()) {
      const std::string text = value.get<std::string>();
      if (has("minLength") && static_cast<double>(length(text)) < number("minLength")) return false;
      if (has("maxLength") && static_cast<double>(length(text)) > number("maxLength")) return false;
      if (has("pattern") && !occurs(schema["pattern"], text)) return false;
    }
    return true;
  }

  bool combinations(const SchemaJson& schema, const SchemaJson& value, Seen& own) const {
    const auto count = [&](const char* key) {
      size_t holds = 0;
      for (const SchemaJson& part : schema[key]) {
        Seen inner;
        if (!check(part, value, inner)) continue;
        own.add(inner);
        ++holds;
      }
      return holds;
    };
    if (schema.contains("allOf") && count("allOf") != schema["allOf"].size()) return false;
    if (schema.contains("anyOf") && count("anyOf") == 0) return false;
    if (schema.contains("oneOf") && count("oneOf") != 1) return false;
    Seen ignored;
    if (schema.contains("not") && check(schema["not"], value, ignored)) return false;
    if (schema.contains("if")) {
      Seen inner;
      const bool met = check(schema["if"], value, inner);
      if (met) own.add(inner);
      const char* branch = met ? "then" : "else";
      if (schema.contains(branch) && !check(schema[branch], value, own)) return false;
    }
    return true;
  }

  bool array_keywords(const SchemaJson& schema, const SchemaJson& value, Seen& own) const {
    const auto has = [&](const char* key) { return schema.contains(key); };
    const auto number = [&](const char* key, double otherwise) {
      return has(key) ? schema[key].get<double>() : otherwise;
    };
    const auto size = static_cast<double>(value.size());
    if (size < number("minItems", 0) || size > number("maxItems", 1e9)) return false;
    if (has("uniqueItems") && schema["uniqueItems"] == true)
      for (size_t i = 0; i < value.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (equal(value[i], value[j])) return false;
    const bool tuple = has("items") && schema["items"].is_array();
    const char* prefix = tuple ? "items" : "prefixItems";
    const char* rest = tuple ? "additionalItems" : "items";
    size_t front = 0;
    if (has(prefix)) front = std::min(schema[prefix].size(), value.size());
    Seen inner;
    for (size_t i = 0; i < front; ++i) {
      if (!check(schema[prefix][i], value[i], inner)) return false;
      own.items.insert(i);
    }
    for (size_t i = front; i < value.size() && has(rest); ++i) {
      if (!check(schema[rest], value[i], inner)) return false;
      own.items.insert(i);
    }
    if (has("contains")) {
      double found = 0;
      for (size_t i = 0; i < value.size(); ++i)
        if (check(schema["contains"], value[i], inner)) ++found, own.items.insert(i);
      const double least = old_ ? 1 : number("minContains", 1);
      if (found < least || found > (old_ ? 1e9 : number("maxContains", 1e9))) return false;
    }
    if (!has("unevaluatedItems")) return true;
    for (size_t i = 0; i < value.size(); ++i)
      if (own.items.insert(i).second && !check(schema["unevaluatedItems"], value[i], inner)) return false;
    return true;
  }

  bool object_keywords(const SchemaJson& schema, const SchemaJson& value, Seen& own) const {
    const auto has = [&](const char* key) { return schema.contains(key); };
    const auto size = static_cast<double>(value.size());
    if (has("minProperties") && size < schema["minProperties"].get<double>()) return false;
    if (has("maxProperties") && size > schema["maxProperties"].get<double>()) return false;
    const auto all_there = [&](const SchemaJson& names) {
      return std::ranges::all_of(names,
                                 [&](const SchemaJson& name) { return value.contains(name.get<std::string>()); });
    };
    if (has("required") && !all_there(schema["required"])) return false;
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"})
      if (has(key))
        for (const auto& [name, needed] : schema[key].items()) {
          if (!value.contains(name)) continue;
          if (needed.is_array() ? !all_there(needed) : !check(needed, value, own)) return false;
        }
    Seen inner;
    std::set<std::string> known;
    for (const auto& [name, member] : value.items()) {
      if (has("propertyNames") && !check(schema["propertyNames"], SchemaJson(name), inner)) return false;
      if (has("properties") && schema["properties"].contains(name)) {
        known.insert(name);
        if (!check(schema["properties"][name], member, inner)) return false;
      }
      if (has("patternProperties"))
        for (const auto& [pattern, wanted] : schema["patternProperties"].items()) {
          if (!occurs(pattern, name)) continue;
          known.insert(name);
          if (!check(wanted, member, inner)) return false;
        }
      if (!has("additionalProperties") || known.contains(name)) continue;
      known.insert(name);
      if (!check(schema["additionalProperties"], member, inner)) return false;
    }
    own.names.insert(known.begin(), known.end());
    if (!has("unevaluatedProperties")) return true;
    for (const auto& [name, member] : value.items())
      if (own.names.insert(name).second && !check(schema["unevaluatedProperties"], member, inner)) return false;
    return true;
  }

  const SchemaJson& root_;
  std::map<std::string, const SchemaJson*> anchors_;
  bool old_ = false;
};

}  // namespace millrace::testing
