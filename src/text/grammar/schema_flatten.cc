#include "text/grammar/schema_flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace millrace {
namespace {

constexpr int64_t kMostWork = 200'000;

SchemaJson absent(const std::string& key) { return {{"properties", {{key, false}}}}; }

}  // namespace

bool is_annotation(std::string_view keyword) {
  static constexpr std::string_view kNames[] = {
      "title", "description", "default", "examples", "example", "$comment", "readOnly", "writeOnly", "deprecated", "contentEncoding",
      "contentMediaType", "contentSchema", "$schema", "$id", "id", "$defs", "definitions", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"};
  return std::ranges::find(kNames, keyword) != std::end(kNames);
}

void SchemaFlattener::note(std::string text) {
  if (std::ranges::find(notes_, text) == notes_.end() && notes_.size() < 50) notes_.push_back(std::move(text));
}

Result<std::vector<FlatSchema>> SchemaFlattener::flatten(const SchemaConjunction& all) {
  State state;
  for (auto it = all.rbegin(); it != all.rend(); ++it) state.todo.emplace_back(*it, -1);
  std::vector<FlatSchema> out;
  MILLRACE_TRY_VOID(expand(std::move(state), out));
  return out;
}

Result<void> SchemaFlattener::expand(State state, std::vector<FlatSchema>& out) {
  while (!state.todo.empty()) {
    const auto [schema, parent] = state.todo.back();
    state.todo.pop_back();
    MILLRACE_TRY(const bool possible, take(state, *schema, parent));
    if (!possible) return {};
  }
  if (state.choices.empty()) {
    if (static_cast<int64_t>(out.size()) >= limits_.alternatives)
      return Error::unsupported(fmt::format("JSON schema: {}: its combinations give more than {} alternatives", state.parts.empty() ? "" : document_.path(*state.parts[0].schema), limits_.alternatives));
    out.push_back(std::move(state.parts));
    return {};
  }
  const Choice choice = std::move(state.choices.back());
  state.choices.pop_back();
  for (const SchemaConjunction& option : choice.options) {
    State next = state;
    for (auto it = option.rbegin(); it != option.rend(); ++it) next.todo.emplace_back(*it, choice.parent);
    MILLRACE_TRY_VOID(expand(std::move(next), out));
  }
  return {};
}

// Adds one schema; false when nothing satisfies it.
Result<bool> SchemaFlattener::take(State& state, const SchemaJson& schema, int32_t parent) {
  if (++work_ > kMostWork) return Error::unsupported("JSON schema: too large: its combinations take too long to work out");
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) return Error::user(fmt::format("JSON schema: {}: a schema must be an object, true or false", document_.path(schema)));
  if (std::ranges::any_of(state.parts, [&](const SchemaPart& p) { return p.schema == &schema; })) return true;
  const auto self = static_cast<int32_t>(state.parts.size());
  const auto reference = schema.find("$ref");
  const bool old = reference != schema.end() && document_.draft_before_2019();
  state.parts.push_back({&schema, parent, old});
  if (reference != schema.end()) {
    if (!reference->is_string()) return Error::user(fmt::format("JSON schema: {}/$ref: must be a string", document_.path(schema)));
    MILLRACE_TRY(const SchemaJson* target, document_.resolve(reference->get<std::string>(), schema));
    state.todo.emplace_back(target, self);
    if (old) return true;
  }
  MILLRACE_TRY_VOID(take_combinations(state, schema, self));
  MILLRACE_TRY_VOID(take_conditions(state, schema, self));
  return true;
}

Result<void> SchemaFlattener::take_combinations(State& state, const SchemaJson& schema, int32_t self) {
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!found->is_array() || found->empty()) return Error::user(fmt::format("JSON schema: {}/{}: must be a list of schemas", document_.path(schema), key));
    if (std::string_view(key) == "allOf") {
      for (auto it = found->rbegin(); it != found->rend(); ++it) state.todo.emplace_back(&*it, self);
      continue;
    }
    Choice choice{{}, self};
    for (const SchemaJson& option : *found) choice.options.push_back({&option});
    if (std::string_view(key) == "oneOf") {
      bool sure = true;
      for (size_t i = 0; i < found->size() && sure; ++i)
        for (size_t j = i + 1; j < found->size() && sure; ++j) sure = found->size() <= 64 && exclusive((*found)[i], (*found)[j], 0);
      if (!sure) note(fmt::format("{}/oneOf is kept as anyOf: a value may match more than one of its schemas", document_.path(schema)));
    }
    state.choices.push_back(std::move(choice));
  }
  return {};
}

Result<void> SchemaFlattener::take_conditions(State& state, const SchemaJson& schema, int32_t self) {
  if (auto found = schema.find("not"); found != schema.end()) {
    MILLRACE_TRY(Options options, negate(*found, 0));
    state.choices.push_back({std::move(options), self});
  }
  const auto condition = schema.find("if");
  const auto then = schema.find("then"), otherwise = schema.find("else");
  if (condition != schema.end() && (then != schema.end() || otherwise != schema.end())) {
    SchemaConjunction met{&*condition};
    if (then != schema.end()) met.push_back(&*then);
    MILLRACE_TRY(Options options, negate(*condition, 0));
    if (otherwise != schema.end())
      for (SchemaConjunction& option : options) option.push_back(&*otherwise);
    options.insert(options.begin(), met);
    state.choices.push_back({std::move(options), self});
  }
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!found->is_object()) return Error::user(fmt::format("JSON schema: {}/{}: must be an object", document_.path(schema), key));
    for (const auto& [name, needed] : found->items()) {
      SchemaJson present{{"required", SchemaJson::array({name})}};
      SchemaConjunction with;
      if (needed.is_array()) {
        for (const SchemaJson& other : needed) present["required"].push_back(other);
      } else {
        with.push_back(&needed);
      }
      with.insert(with.begin(), &document_.adopt(std::move(present), *found));
      state.choices.push_back({{{&document_.adopt(absent(name), *found)}, std::move(with)}, self});
    }
  }
  return {};
}

// What is valid where `schema` is not, as alternatives. Errors: unsupported, where that cannot be said exactly.
Result<SchemaFlattener::Options> SchemaFlattener::negate(const SchemaJson& schema, int64_t depth) {
  if (++work_ > kMostWork || depth > 20) return Error::unsupported(fmt::format("JSON schema: {}: 'not' or 'if' is too deep here", document_.path(schema)));
  Options options;
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) options.push_back({});
    return options;
  }
  if (!schema.is_object()) return Error::user(fmt::format("JSON schema: {}: a schema must be an object, true or false", document_.path(schema)));
  for (const auto& [key, value] : schema.items()) {
    if (is_annotation(key) || key == "format") continue;
    MILLRACE_TRY(Options some, negate_keyword(schema, key, value, depth));
    options.insert(options.end(), some.begin(), some.end());
  }
  return options;
}

Result<SchemaFlattener::Options> SchemaFlattener::negate_keyword(const SchemaJson& schema, const std::string& key, const SchemaJson& value, int64_t depth) {
  const auto one = [&](SchemaJson made) { return Options{{&document_.adopt(std::move(made), schema)}}; };
  const auto refuse = [&] { return Error::unsupported(fmt::format("JSON schema: {}: 'not' or 'if' over '{}' is not supported", document_.path(schema), key)); };
  if (key == "$ref" && value.is_string()) {
    MILLRACE_TRY(const SchemaJson* target, document_.resolve(value.get<std::string>(), schema));
    return negate(*target, depth + 1);
  }
  if (key == "not") return one(value);
  if (key == "const") return one({{kNotEnum, SchemaJson::array({value})}});
  if (key == "enum") return one({{kNotEnum, value}});
  if (key == "pattern") return one({{"type", "string"}, {kNotPattern, value}});
  if (key == "minimum" && value.is_number()) return one({{"type", "number"}, {"exclusiveMaximum", value}});
  if (key == "maximum" && value.is_number()) return one({{"type", "number"}, {"exclusiveMinimum", value}});
  if (key == "exclusiveMinimum" && value.is_number()) return one({{"type", "number"}, {"maximum", value}});
  if (key == "exclusiveMaximum" && value.is_number()) return one({{"type", "number"}, {"minimum", value}});
  for (const auto& [least, most, type] : {std::tuple{"minLength", "maxLength", "string"}, {"minItems", "maxItems", "array"}, {"minProperties", "maxProperties", "object"}}) {
    if (key == most && value.is_number_unsigned()) return one({{"type", type}, {least, value.get<uint64_t>() + 1}});
    if (key == least && value.is_number_unsigned()) return value == 0 ? Options{} : one({{"type", type}, {most, value.get<uint64_t>() - 1}});
  }
  Options options;
  if (key == "type") {
    SchemaJson others = SchemaJson::array();
    const auto named = [&](std::string_view name) {
      return value == name || (value.is_array() && std::ranges::any_of(value, [&](const SchemaJson& v) { return v == name; }));
    };
    for (const char* name : {"null", "boolean", "string", "array", "object"})
      if (!named(name)) others.push_back(name);
    if (!named("number") && !named("integer")) others.push_back("number");
    options.push_back({&document_.adopt({{"type", others}}, schema)});
    if (!named("number") && named("integer")) options.push_back({&document_.adopt({{"type", "number"}, {kNotInteger, true}}, schema)});
    return options;
  }
  if (key == "required" && value.is_array()) {
    for (const SchemaJson& name : value) {
      if (!name.is_string()) return refuse();
      SchemaJson without = absent(name.get<std::string>());
      without["type"] = "object";
      options.push_back({&document_.adopt(std::move(without), schema)});
    }
    return options;
  }
  if (key == "properties" && value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      MILLRACE_TRY(const Options ways, negate(inner, depth + 1));
      for (const SchemaConjunction& way : ways) {
        SchemaJson all = SchemaJson::array();
        for (const SchemaJson* part : way) all.push_back(*part);
        SchemaJson property = SchemaJson::object();
        if (!all.empty()) property["allOf"] = all;
        options.push_back({&document_.adopt({{"type", "object"}, {"required", SchemaJson::array({name})}, {"properties", {{name, property}}}}, schema)});
      }
    }
    return options;
  }
  if (key == "allOf" && value.is_array()) {
    for (const SchemaJson& part : value) {
      MILLRACE_TRY(const Options ways, negate(part, depth + 1));
      options.insert(options.end(), ways.begin(), ways.end());
    }
    return options;
  }
  if (key == "anyOf" && value.is_array()) {  // none of them: one way out of each
    options.push_back({});
    for (const SchemaJson& part : value) {
      MILLRACE_TRY(const Options ways, negate(part, depth + 1));
      Options next;
      for (const SchemaConjunction& before : options)
        for (const SchemaConjunction& way : ways) {
          next.push_back(before);
          next.back().insert(next.back().end(), way.begin(), way.end());
        }
      options = std::move(next);
      if (static_cast<int64_t>(options.size()) > limits_.alternatives) return refuse();
    }
    return options;
  }
  return refuse();
}

// True when surely no value matches both: other types, or another constant under the same required property.
bool SchemaFlattener::exclusive(const SchemaJson& a, const SchemaJson& b, int depth) const {
  const auto plain = [&](const SchemaJson* s) {
    for (int i = 0; i < 10 && s->is_object() && s->contains("$ref") && s->at("$ref").is_string(); ++i) {
      auto target = document_.resolve(s->at("$ref").get<std::string>(), *s);
      if (!target.ok()) break;
      s = *target;
    }
    return s;
  };
  const SchemaJson &x = *plain(&a), &y = *plain(&b);
  if (x == false || y == false) return true;
  if (!x.is_object() || !y.is_object() || depth > 2) return false;
  const auto constants = [](const SchemaJson& s) {
    SchemaJson out;
    if (auto it = s.find("const"); it != s.end()) out = SchemaJson::array({*it});
    else if (it = s.find("enum"); it != s.end() && it->is_array()) out = *it;
    return out;
  };
  const auto types = [&](const SchemaJson& s) {
    std::vector<std::string> out;
    const auto type_name = [](const SchemaJson& v) { return std::string(v.is_number() ? "number" : v.type_name()); };
    const SchemaJson values = constants(s);
    if (values.is_array()) {
      for (const SchemaJson& v : values) out.push_back(type_name(v));
    } else if (auto it = s.find("type"); it != s.end()) {
      for (const SchemaJson& v : it->is_array() ? *it : SchemaJson::array({*it}))
        if (v.is_string()) out.push_back(v == "integer" ? "number" : v.get<std::string>());
    }
    std::ranges::sort(out);
    return out;
  };
  const auto apart = [](auto one, auto other) {
    for (const auto& v : one)
      if (std::ranges::find(other, v) != other.end()) return false;
    return true;
  };
  const auto tx = types(x), ty = types(y);
  if (!tx.empty() && !ty.empty() && apart(tx, ty)) return true;
  const SchemaJson cx = constants(x), cy = constants(y);
  if (cx.is_array() && cy.is_array() && apart(cx, cy)) return true;
  const auto requires_key = [](const SchemaJson& s, const std::string& key) {
    auto it = s.find("required");
    return it != s.end() && it->is_array() && std::ranges::find(*it, SchemaJson(key)) != it->end();
  };
  if (tx != std::vector<std::string>{"object"} || ty != tx || !x.contains("properties") || !y.contains("properties")) return false;
  if (!x["properties"].is_object() || !y["properties"].is_object()) return false;
  for (const auto& [key, inner] : x["properties"].items()) {
    auto other = y["properties"].find(key);
    if (other != y["properties"].end() && requires_key(x, key) && requires_key(y, key) && exclusive(inner, *other, depth + 1)) return true;
  }
  return false;
}

}  // namespace millrace
