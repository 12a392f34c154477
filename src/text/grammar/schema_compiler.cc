#include "text/grammar/schema_compiler.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

Result<void> SchemaCompiler::compile() {
  MILLRACE_TRY(const ExprId root, value({&document_.root()}));
  spec_.root = spec_.add_rule("the JSON schema");
  spec_.set_body(spec_.root, root);
  while (!tasks_.empty()) {
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    MILLRACE_TRY_VOID(task.object ? build_object(task) : build_array(task));
    if (static_cast<int64_t>(spec_.rules().size()) > limits_.rules ||
        static_cast<int64_t>(spec_.size()) > limits_.nfa_states)
      return Error::unsupported("JSON schema: too large; its combinations make too many different objects and lists");
  }
  return {};
}

Result<ExprId> SchemaCompiler::automaton(Dfa dfa) {
  states_ += dfa.size();
  if (states_ > limits_.total_states)
    return Error::unsupported(
        fmt::format("JSON schema: too large, it has more than {} states; simplify it", limits_.total_states));
  return spec_.dfa(std::make_shared<const Dfa>(std::move(dfa)));
}

Result<ExprId> SchemaCompiler::value(const SchemaConjunction& all) {
  const std::set<const SchemaJson*> key(all.begin(), all.end());
  if (auto found = values_.find(key); found != values_.end()) return found->second;
  MILLRACE_TRY(const std::vector<FlatSchema> alternatives, flattener_.flatten(all));
  std::vector<ExprId> ways;
  for (const FlatSchema& parts : alternatives) {
    MILLRACE_TRY(const ExprId way, alternative(parts));
    if (!never(way)) ways.push_back(way);
  }
  const ExprId whole = spec_.choice(std::move(ways));
  values_[key] = whole;
  return whole;
}

Result<ExprId> SchemaCompiler::alternative(const FlatSchema& parts) {
  MILLRACE_TRY(MergedSchema merged, merge_schema(parts, document_, notes_));
  if (merged.values) return literals(parts, merged);
  if (std::ranges::any_of(
          parts, [](const SchemaPart& part) { return !part.reference && part.schema->contains(kSomeProperty); })) {
    MILLRACE_TRY(const std::vector<FlatSchema> settled, settle_demands(parts));
    std::vector<ExprId> ways;
    for (const FlatSchema& one : settled) {
      MILLRACE_TRY(const ExprId way, alternative(one));
      if (!never(way)) ways.push_back(way);
    }
    return spec_.choice(std::move(ways));
  }
  const auto excluded = [&](const SchemaJson& value) {
    return std::ranges::find(merged.excluded, value) != merged.excluded.end();
  };
  std::vector<ExprId> ways;
  if ((merged.types & kNull) && !excluded(nullptr)) ways.push_back(spec_.bytes("null"));
  for (const bool truth : {true, false})
    if ((merged.types & kBoolean) && !excluded(truth)) ways.push_back(spec_.bytes(truth ? "true" : "false"));
  if (merged.types & (kInteger | kFraction)) {
    if (merged.numbers.free()) {
      ways.push_back(merged.numbers.integer ? json_.integer() : json_.number());
    } else {
      MILLRACE_TRY(Dfa dfa, number_dfa(merged.numbers, limits_, merged.path));
      if (!dfa.empty()) {
        MILLRACE_TRY(const ExprId number, automaton(std::move(dfa)));
        ways.push_back(number);
      }
    }
  }
  if (merged.types & kString) {
    MILLRACE_TRY(const ExprId text, string_value(merged));
    if (!never(text)) ways.push_back(text);
  }
  for (const bool object : {true, false}) {
    if (!(merged.types & (object ? kObject : kArray))) continue;
    MILLRACE_TRY(const ExprId one, container(object, parts, merged));
    if (!never(one)) ways.push_back(one);
  }
  return spec_.choice(std::move(ways));
}

Result<ExprId> SchemaCompiler::literals(const FlatSchema& parts, const MergedSchema& merged) {
  static constexpr const char* kInner[] = {
      "properties",    "patternProperties", "additionalProperties",  "required",
      "items",         "prefixItems",       "additionalItems",       "uniqueItems",
      "propertyNames", "contains",          "unevaluatedProperties", "unevaluatedItems",
      kSomeItem,       kSomeProperty};
  const bool inner = std::ranges::any_of(parts, [](const SchemaPart& part) {
    return !part.reference && std::ranges::any_of(kInner, [&](const char* key) { return part.schema->contains(key); });
  });
  std::vector<ExprId> ways;
  for (const SchemaJson& value : *merged.values) {
    MILLRACE_TRY(const bool allowed, allows_value(merged, value, limits_));
    if (!allowed) continue;
    if (!inner || !value.is_structured()) {
      ways.push_back(json_.literal(value));
      continue;
    }
    // A list or an object with other keywords: converted to a schema, so that they apply to its members too.
    FlatSchema with = parts;
    with.push_back({&document_.adopt(constant_schema(value), *parts.front().schema), -1, false});
    MILLRACE_TRY(const std::vector<FlatSchema> settled, settle_demands(with));
    for (const FlatSchema& one : settled) {
      MILLRACE_TRY(MergedSchema both, merge_schema(one, document_, notes_));
      both.values.reset();
      MILLRACE_TRY(const ExprId way, container(value.is_object(), one, both));
      if (!never(way)) ways.push_back(way);
    }
  }
  return spec_.choice(std::move(ways));
}

Result<ExprId> SchemaCompiler::string_value(const MergedSchema& merged) {
  const StringBounds& bounds = merged.strings;
  if (bounds.min_length > bounds.max_length) return spec_.never();
  if (bounds.lengths_only()) return json_.string(bounds.min_length, bounds.max_length);
  MILLRACE_TRY(Dfa dfa, string_dfa(bounds, limits_, merged.path));
  if (dfa.empty()) return spec_.never();
  MILLRACE_TRY(const ExprId text, automaton(std::move(dfa)));
  return spec_.sequence({spec_.bytes("\""), text, spec_.bytes("\"")});
}

// { or [ followed by a call of the rule for the rest.
Result<ExprId> SchemaCompiler::container(bool object, const FlatSchema& parts, const MergedSchema& merged) {
  bool plain = object ? merged.min_properties == 0 && merged.max_properties == kNoLimit && merged.required.empty()
                      : merged.min_items == 0 && merged.max_items == kNoLimit && !merged.unique_items;
  static constexpr const char* kObjectKeys[] = {"properties",    "patternProperties",     "additionalProperties",
                                                "propertyNames", "unevaluatedProperties", kOtherProperty};
  static constexpr const char* kArrayKeys[] = {"items", "prefixItems", "unevaluatedItems", "contains", kSomeItem};
  for (const SchemaPart& part : parts) {
    if (part.reference) continue;
    if (object)
      plain &= std::ranges::none_of(kObjectKeys, [&](const char* key) { return part.schema->contains(key); });
    else
      plain &= std::ranges::none_of(kArrayKeys, [&](const char* key) { return part.schema->contains(key); });
  }
  if (plain) return object ? json_.any_object() : json_.any_array();

  std::pair<bool, std::set<const SchemaJson*>> key{object, {}};
  for (const SchemaPart& part : parts)
    if (!part.reference) key.second.insert(part.schema);
  auto found = containers_.find(key);
  if (found == containers_.end()) {
    Calls calls;
    Task task{object, -1, parts, merged};
    if (object) {
      MILLRACE_TRY_VOID(plan_counts(parts, merged, calls, task));
    } else {
      MILLRACE_TRY(const ArrayShape shape, array_shape(parts, merged));
      if (merged.unique_items && merged.max_items > 1) {
        MILLRACE_TRY(task.unique, unique_list(shape, merged));
        if (!task.unique)
          notes_.weaken(fmt::format("{}/uniqueItems is not enforced: the items have too many possible values to track",
                                    merged.path));
      }
      const uint32_t fixed =
          std::max<uint32_t>(1, static_cast<uint32_t>(shape.prefix.size()));  // items that do not tick
      task.counted =
          !task.unique && shape.demands.empty() && (merged.min_items > fixed || merged.max_items != kNoLimit);
      if (task.counted) {
        calls.need = merged.min_items > fixed ? merged.min_items - fixed : 0;
        calls.room = merged.max_items == kNoLimit ? kNoLimit : merged.max_items > fixed ? merged.max_items - fixed : 0;
      }
    }
    calls.rule = spec_.add_rule(merged.path.empty() ? "the JSON schema" : fmt::format("JSON schema: {}", merged.path));
    task.rule = calls.rule;
    found = containers_.emplace(std::move(key), calls).first;
    tasks_.push_back(std::move(task));
  }
  const Calls& calls = found->second;
  if (calls.need > calls.room) return spec_.never();
  return spec_.sequence({spec_.bytes(object ? "{" : "["), spec_.call(calls.rule, calls.need, calls.room)});
}

}  // namespace millrace
