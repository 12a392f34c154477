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
    if (static_cast<int64_t>(spec_.rules().size()) > limits_.rules || static_cast<int64_t>(spec_.size()) > limits_.nfa_states)
      return Error::unsupported("JSON schema: too large; its combinations give too many different objects and lists");
  }
  return {};
}

Result<ExprId> SchemaCompiler::automaton(Dfa dfa) {
  states_ += dfa.size();
  if (states_ > limits_.total_states) return Error::unsupported(fmt::format("JSON schema: too large, it has more than {} states; simplify it", limits_.total_states));
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
  for (const SchemaJson& value : merged.excluded) {
    if (value.is_string()) {
      merged.strings.excluded.push_back(value.get<std::string>());
    } else if (value.is_boolean() && (merged.types & kBoolean)) {
      merged.values = std::vector<SchemaJson>{!value.get<bool>()};  // the other one, and all other types below
    } else if (value.is_null()) {
      merged.types &= static_cast<uint8_t>(~kNull);
    } else if (merged.types & (value.is_number() ? kInteger | kFraction : value.is_array() ? kArray : kObject)) {
      return Error::unsupported(fmt::format("JSON schema: {}: 'not' over a number, list or object is not supported", merged.path));
    }
  }
  std::vector<ExprId> ways;
  if (merged.types & kNull) ways.push_back(spec_.bytes("null"));
  if (merged.types & kBoolean) {
    for (const bool truth : {true, false})
      if (!merged.values || merged.values->front() == truth) ways.push_back(spec_.bytes(truth ? "true" : "false"));
  }
  merged.values.reset();
  if (merged.types & kInteger) {
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
  static constexpr const char* kInner[] = {"properties", "patternProperties", "additionalProperties", "required", "items", "prefixItems", "additionalItems", "uniqueItems", "propertyNames", "contains"};
  std::vector<ExprId> ways;
  for (const SchemaJson& value : *merged.values) {
    MILLRACE_TRY(const bool allowed, allows_value(merged, value, limits_));
    if (!allowed) continue;
    if (value.is_structured()) {
      for (const SchemaPart& part : parts)
        for (const char* key : kInner)
          if (!part.reference && part.schema->contains(key)) return Error::unsupported(fmt::format("JSON schema: {}: enum or const with lists or objects beside '{}' is not supported", merged.path, key));
    }
    ways.push_back(json_.literal(value));
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

// { or [ and a call of the rule for the rest.
Result<ExprId> SchemaCompiler::container(bool object, const FlatSchema& parts, const MergedSchema& merged) {
  bool plain = object ? merged.min_properties == 0 && merged.max_properties == kNoLimit && merged.required.empty()
                      : merged.min_items == 0 && merged.max_items == kNoLimit && !merged.unique_items;
  static constexpr const char* kObjectKeys[] = {"properties", "patternProperties", "additionalProperties", "propertyNames", "unevaluatedProperties"};
  static constexpr const char* kArrayKeys[] = {"items", "prefixItems", "unevaluatedItems"};
  for (const SchemaPart& part : parts) {
    if (part.reference) continue;
    if (object) plain &= std::ranges::none_of(kObjectKeys, [&](const char* key) { return part.schema->contains(key); });
    else plain &= std::ranges::none_of(kArrayKeys, [&](const char* key) { return part.schema->contains(key); });
  }
  if (plain) return object ? json_.any_object() : json_.any_array();

  std::pair<bool, std::set<const SchemaJson*>> key{object, {}};
  for (const SchemaPart& part : parts)
    if (!part.reference) key.second.insert(part.schema);
  auto found = containers_.find(key);
  if (found == containers_.end()) {
    Calls calls;
    Task task{object, -1, parts, merged, false};
    if (object) {
      MILLRACE_TRY(task.counted, plan_counts(parts, merged, calls));
    } else {
      MILLRACE_TRY(const ArrayShape shape, array_shape(parts, merged));
      const uint32_t fixed = std::max<uint32_t>(1, static_cast<uint32_t>(shape.prefix.size()));  // items that count no tick
      task.counted = !merged.unique_items && (merged.min_items > fixed || merged.max_items != kNoLimit);
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
