#include "text/grammar/schema_flatten.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>

#include "text/grammar/schema.h"

namespace millrace {
uint8_t type_bits(const SchemaJson& name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kInteger | kFraction;
  if (name == "string") return kString;
  if (name == "array") return kArray;
  return name == "object" ? kObject : 0;
}

namespace {

constexpr int64_t kMaxWork = 20'000;        // schemas visited, per value
constexpr int64_t kMaxTotalWork = 400'000;  // schemas visited, in total
constexpr int kMaxFlatChoices = 2'000;      // nested
constexpr size_t kFewWays = 32;             // alternatives that are not checked for satisfiability
constexpr size_t kMaxTold = 40;             // schemas of a oneOf that are compared pairwise
constexpr size_t kMaxFlatSubsets = 6;       // schemas of an anyOf whose subsets are enumerated

uint8_t type_of(const SchemaJson& value) {
  switch (value.type()) {
    case SchemaJson::value_t::null: return kNull;
    case SchemaJson::value_t::boolean: return kBoolean;
    case SchemaJson::value_t::string: return kString;
    case SchemaJson::value_t::array: return kArray;
    case SchemaJson::value_t::object: return kObject;
    default: return kInteger | kFraction;
  }
}

uint8_t types_named(const SchemaJson& names) {
  uint8_t types = 0;
  const auto add = [&](const SchemaJson& name) {
    const uint8_t bits = type_bits(name);
    types |= bits == 0 ? uint8_t{kAllTypes} : bits;  // an invalid name is reported later
  };
  if (!names.is_array())
    add(names);
  else
    for (const SchemaJson& name : names) add(name);
  return types;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool is_annotation(std::string_view keyword) {
  static constexpr std::string_view kNames[] = {"title",
                                                "description",
                                                "default",
                                                "examples",
                                                "example",
                                                "$comment",
                                                "readOnly",
                                                "writeOnly",
                                                "deprecated",
                                                "contentEncoding",
                                                "contentMediaType",
                                                "contentSchema",
                                                "$schema",
                                                "$id",
                                                "id",
                                                "$defs",
                                                "definitions",
                                                "$anchor",
                                                "$dynamicAnchor",
                                                "$recursiveAnchor",
                                                "$vocabulary",
                                                kStrictSchema};
  return std::ranges::find(kNames, keyword) != std::end(kNames);
}

// Checks for emptiness within a run may flatten the names of keys: that run's state is restored.
Result<std::vector<FlatSchema>> SchemaFlattener::flatten(const SchemaConjunction& all) {
  const auto outer = std::tuple(weak_now_, turned_now_, work_);
  auto out = flatten_alone(all);
  std::tie(weak_now_, turned_now_, work_) = outer;
  return out;
}

Result<std::vector<FlatSchema>> SchemaFlattener::flatten_alone(const SchemaConjunction& all) {
  weak_now_ = one_of_ == OneOf::weak;
  turned_now_ = false;
  auto out = run(all);
  if (out.ok() || !turned_now_ || out.error().kind != ErrorKind::unsupported) {
    turned_ |= turned_now_;
    return out;
  }
  if (limits_.budget) MILLRACE_TRY_VOID(limits_.budget->check());  // do not weaken the schema because time ran out
  weak_now_ = true;
  out = run(all);
  weak_now_ = false;
  return out;
}

Result<std::vector<FlatSchema>> SchemaFlattener::run(const SchemaConjunction& all) {
  work_ = 0;
  State state;
  for (auto it = all.rbegin(); it != all.rend(); ++it) state.todo.emplace_back(*it, -1);
  std::vector<FlatSchema> out;
  MILLRACE_TRY_VOID(expand(std::move(state), out, 0));
  return out;
}

Result<void> SchemaFlattener::expand(State state, std::vector<FlatSchema>& out, int depth) {
  if (depth > kMaxFlatChoices)
    return Error::unsupported("JSON schema: too large: its combinations are nested too deeply");
  while (!state.todo.empty()) {
    const auto [schema, parent] = state.todo.back();
    state.todo.pop_back();
    MILLRACE_TRY(const bool possible, take(state, *schema, parent));
    if (!possible) return {};
  }
  if (state.choices.empty()) {
    if (dead_ && out.size() >= kFewWays && dead_(state.parts)) return {};
    if (static_cast<int64_t>(out.size()) >= limits_.alternatives)
      return Error::unsupported(fmt::format("JSON schema: {}: its combinations produce more than {} alternatives",
                                            state.parts.empty() ? "" : document_.path(*state.parts[0].schema),
                                            limits_.alternatives));
    out.push_back(std::move(state.parts));
    return {};
  }
  // Prunes impossible options where the choices would multiply.
  double ways = static_cast<double>(out.size());
  for (const Choice& choice : state.choices)
    ways = std::max(ways, 1.0) * static_cast<double>(std::max<size_t>(1, choice.options.size()));
  if (dead_ && depth > 1 && ways > kFewWays && dead_(state.parts)) return {};
  const Choice choice = std::move(state.choices.back());
  state.choices.pop_back();
  for (const SchemaConjunction& option : choice.options) {
    State next = state;
    for (auto it = option.rbegin(); it != option.rend(); ++it) next.todo.emplace_back(*it, choice.parent);
    MILLRACE_TRY_VOID(expand(std::move(next), out, depth + 1));
  }
  return {};
}

// Adds one schema; false if nothing satisfies it.
Result<bool> SchemaFlattener::take(State& state, const SchemaJson& schema, int32_t parent) {
  if (limits_.budget) MILLRACE_TRY_VOID(limits_.budget->check(16 + static_cast<int64_t>(state.parts.size())));
  if (++work_ > kMaxWork || ++total_work_ > kMaxTotalWork)
    return Error::unsupported("JSON schema: too large: its combinations take too long to resolve");
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object())
    return Error::user(
        fmt::format("JSON schema: {}: a schema must be an object, true or false", document_.path(schema)));
  if (std::ranges::any_of(state.parts, [&](const SchemaPart& p) { return p.schema == &schema; })) return true;
  const auto self = static_cast<int32_t>(state.parts.size());
  const auto reference = schema.find("$ref");
  const bool old = reference != schema.end() && document_.draft_before_2019();
  state.parts.push_back({&schema, parent, old});
  if (reference != schema.end()) {
    if (!reference->is_string())
      return Error::user(fmt::format("JSON schema: {}/$ref: must be a string", document_.path(schema)));
    MILLRACE_TRY(const SchemaJson* target, document_.resolve(reference->get<std::string>(), schema));
    state.todo.emplace_back(target, self);
    if (old) return true;
  }
  if (!possible(state, schema)) return false;
  MILLRACE_TRY_VOID(take_links(state, schema, self));
  MILLRACE_TRY_VOID(take_combinations(state, schema, self));
  MILLRACE_TRY_VOID(take_conditions(state, schema, self));
  return true;
}

// Checks the schema against the known facts about the value; false if they contradict.
bool SchemaFlattener::possible(State& state, const SchemaJson& schema) const {
  if (auto type = schema.find("type"); type != schema.end()) state.types &= types_named(*type);
  if (auto value = schema.find("const"); value != schema.end()) state.types &= type_of(*value);
  if (auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    uint8_t types = 0;
    for (const SchemaJson& value : *values) types |= type_of(value);
    state.types &= types;
  }
  if (schema.contains(kNotInteger)) state.types &= static_cast<uint8_t>(~kInteger);
  if (auto required = schema.find("required"); required != schema.end() && required->is_array())
    for (const SchemaJson& name : *required)
      if (name.is_string() && !has(state.required, name.get<std::string>()))
        state.required.push_back(name.get<std::string>());
  if (auto properties = schema.find("properties"); properties != schema.end() && properties->is_object())
    for (const auto& [name, inner] : properties->items()) {
      if (inner == false)
        state.absent.push_back(name);
      else if (inner.is_object())
        narrow_constants(state, name, inner);
    }
  for (const std::string& name : state.required) {
    const auto constants = state.constants.find(name);
    if (has(state.absent, name) || (constants != state.constants.end() && constants->second.empty()))
      state.types &= static_cast<uint8_t>(~kObject);
  }
  return state.types != 0;
}

void SchemaFlattener::narrow_constants(State& state, const std::string& name, const SchemaJson& schema) const {
  const auto listed = [](const SchemaJson& from) -> std::optional<std::vector<SchemaJson>> {
    if (auto value = from.find("const"); value != from.end()) return std::vector<SchemaJson>{*value};
    if (auto values = from.find("enum"); values != from.end() && values->is_array())
      return std::vector<SchemaJson>(values->begin(), values->end());
    return std::nullopt;
  };
  const auto turned = schema.find(kNot);
  if (auto values = turned == schema.end() ? listed(schema) : std::nullopt) {
    auto [entry, fresh] = state.constants.try_emplace(name, *values);
    if (!fresh)
      std::erase_if(entry->second, [&](const SchemaJson& v) { return std::ranges::find(*values, v) == values->end(); });
  }
  auto known = state.constants.find(name);
  if (turned == schema.end() || known == state.constants.end()) return;
  const SchemaJson& inner = document_.linked(*turned);
  if (!inner.is_object()) return;
  for (const auto& [key, value] : inner.items())
    if (!is_annotation(key) && key != "const" && key != "enum" && key != "type") return;
  const auto type = inner.find("type");
  if (const auto values = listed(inner))
    std::erase_if(known->second, [&](const SchemaJson& v) {
      return std::ranges::find(*values, v) != values->end() &&
             (type == inner.end() || (v.is_string() && types_named(*type) & kString));
    });
}

// Follows the links of derived schemas to parts of the document.
Result<void> SchemaFlattener::take_links(State& state, const SchemaJson& schema, int32_t self) {
  if (auto link = schema.find(kIs); link != schema.end()) state.todo.emplace_back(&document_.linked(*link), self);
  if (auto dynamic = schema.find("$dynamicRef"); dynamic != schema.end()) {
    if (!dynamic->is_string())
      return Error::user(fmt::format("JSON schema: {}/$dynamicRef: must be a string", document_.path(schema)));
    MILLRACE_TRY(const SchemaJson* target, document_.resolve_dynamic(dynamic->get<std::string>(), schema));
    state.todo.emplace_back(target, self);
  }
  for (const char* key : {kNot, "not"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    auto options = negate(key == kNot ? document_.linked(*found) : *found);
    if (!options.ok() && one_of_ == OneOf::loose) continue;
    if (!options.ok()) return options.error();
    state.choices.push_back({std::move(*options), self});
  }
  return {};
}

bool SchemaFlattener::apart(const SchemaJson& a, const SchemaJson& b) {
  auto [entry, fresh] = apart_.try_emplace({&a, &b}, false);
  if (fresh && empty_) {
    const bool surely = empty_({&a, &b});
    apart_[{&a, &b}] = surely;
    return surely;
  }
  return entry->second;
}

SchemaFlattener::Options SchemaFlattener::exactly_one(const SchemaJson& list, const SchemaJson& schema) {
  Options options;
  bool overlap = false;
  for (size_t i = 0; i < list.size(); ++i) {
    SchemaConjunction option{&list[i]};
    for (size_t j = 0; j < list.size(); ++j) {
      if (i == j || one_of_ == OneOf::loose) continue;
      if (list.size() <= kMaxTold && apart(list[std::min(i, j)], list[std::max(i, j)])) continue;
      overlap = true;
      if (!weak_now_) option.push_back(&not_of(list[j]));
    }
    options.push_back(std::move(option));
  }
  if (overlap && !weak_now_) turned_now_ = true;
  if (overlap && weak_now_)
    notes_.weaken(fmt::format("{}/oneOf is enforced as anyOf: a value may match more than one of its schemas",
                              document_.path(schema)));
  return options;
}

// Whether an "unevaluated" keyword applies to this part: then it matters which schemas match together.
bool SchemaFlattener::watched(const State& state, int32_t self) const {
  for (int32_t p = self; p >= 0; p = state.parts[static_cast<size_t>(p)].parent) {
    const SchemaJson& above = *state.parts[static_cast<size_t>(p)].schema;
    if (above.contains("unevaluatedProperties") || above.contains("unevaluatedItems")) return true;
  }
  return false;
}

Result<void> SchemaFlattener::take_combinations(State& state, const SchemaJson& schema, int32_t self) {
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!found->is_array() || found->empty())
      return Error::user(fmt::format("JSON schema: {}/{}: must be a list of schemas", document_.path(schema), key));
    if (std::string_view(key) == "allOf") {
      for (auto it = found->rbegin(); it != found->rend(); ++it) state.todo.emplace_back(&*it, self);
      continue;
    }
    if (std::string_view(key) == "oneOf") {
      state.choices.push_back({exactly_one(*found, schema), self});
      continue;
    }
    Choice choice{{}, self};
    if (watched(state, self) && found->size() <= kMaxFlatSubsets) {
      for (size_t subset = 1; subset < size_t{1} << found->size(); ++subset) {
        choice.options.emplace_back();
        for (size_t i = 0; i < found->size(); ++i)
          if (subset >> i & 1) choice.options.back().push_back(&(*found)[i]);
      }
    } else {
      for (const SchemaJson& option : *found) choice.options.push_back({&option});
    }
    state.choices.push_back(std::move(choice));
  }
  return {};
}

Result<void> SchemaFlattener::take_conditions(State& state, const SchemaJson& schema, int32_t self) {
  const auto condition = schema.find("if");
  const auto then = schema.find("then"), otherwise = schema.find("else");
  const bool decides = then != schema.end() || otherwise != schema.end();
  if (condition != schema.end() && (decides || watched(state, self))) {
    SchemaConjunction met{&*condition}, unmet;
    if (then != schema.end()) met.push_back(&*then);
    if (decides) unmet.push_back(&not_of(*condition));  // "unevaluated" may see less, which is stricter
    if (otherwise != schema.end()) unmet.push_back(&*otherwise);
    state.choices.push_back({{std::move(met), std::move(unmet)}, self});
  }
  for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    const auto found = schema.find(key);
    if (found == schema.end()) continue;
    if (!found->is_object())
      return Error::user(fmt::format("JSON schema: {}/{}: must be an object", document_.path(schema), key));
    for (const auto& [name, needed] : found->items()) {
      SchemaJson present{{"type", "object"}, {"required", SchemaJson::array({name})}};
      SchemaConjunction with;
      if (needed.is_array()) {
        for (const SchemaJson& other : needed) present["required"].push_back(other);
      } else {
        with.push_back(&needed);
      }
      with.insert(with.begin(), &document_.adopt(std::move(present), *found));
      state.choices.push_back({{{&document_.adopt({{"properties", {{name, false}}}}, *found)}, std::move(with)}, self});
    }
  }
  return {};
}

}  // namespace millrace
