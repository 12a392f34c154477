// Lists: items in front that have schemas of their own, then any number of others. Numbers of items are counted by ticks
// at the commas; the first item and those in front count none.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr size_t kMostPrefix = 1000;
constexpr size_t kMostUnique = 8;  // values whose subsets are told apart

}  // namespace

Result<SchemaCompiler::ArrayShape> SchemaCompiler::array_shape(const FlatSchema& parts, const MergedSchema& merged) const {
  ArrayShape shape;
  std::vector<std::pair<const SchemaJson*, const SchemaJson*>> rules;  // the items in front, what the others must be
  size_t longest = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].reference) continue;
    const SchemaJson& schema = *parts[p].schema;
    const auto find = [&](const char* key) {
      auto it = schema.find(key);
      return it == schema.end() ? nullptr : &*it;
    };
    const SchemaJson *prefix = find("prefixItems"), *items = find("items");
    if (items && items->is_array()) {  // drafts before 2020
      prefix = items;
      items = find("additionalItems");
    }
    if (prefix && !prefix->is_array()) return Error::user(fmt::format("JSON schema: {}/prefixItems: must be a list", document_.path(schema)));
    if (const SchemaJson* rest = find("unevaluatedItems")) {
      const bool alone = std::ranges::all_of(parts, [&](const SchemaPart& o) { return o.schema == &schema || !(o.schema->contains("items") || o.schema->contains("prefixItems")); });
      if (!alone) return Error::unsupported(fmt::format("JSON schema: {}/unevaluatedItems: is not supported beside items of other schemas", document_.path(schema)));
      if (!items) items = rest;
    }
    if (prefix || items) rules.emplace_back(prefix, items);
    if (prefix) longest = std::max(longest, prefix->size());
  }
  if (longest > kMostPrefix) return Error::unsupported(fmt::format("JSON schema: {}: more than {} items in front", merged.path, kMostPrefix));
  longest = std::min<size_t>(longest, merged.max_items);
  for (size_t i = 0; i < longest; ++i) {
    SchemaConjunction one;
    for (const auto& [prefix, items] : rules) {
      if (prefix && i < prefix->size()) one.push_back(&(*prefix)[i]);
      else if (items) one.push_back(items);
    }
    shape.prefix.push_back(std::move(one));
  }
  for (const auto& [prefix, items] : rules)
    if (items) shape.items.push_back(items);
  shape.more = merged.max_items > longest;
  return shape;
}

Result<void> SchemaCompiler::build_array(const Task& task) {
  const MergedSchema& merged = task.merged;
  MILLRACE_TRY(const ArrayShape shape, array_shape(task.parts, merged));
  const uint32_t min = merged.min_items;
  if (merged.unique_items && merged.max_items > 1) {
    MILLRACE_TRY(const ExprId list, unique_list(shape, merged));
    spec_.set_body(task.rule, json_.array_rest(list));
    return {};
  }
  ExprId item = spec_.never();
  if (shape.more) {
    MILLRACE_TRY(item, value(shape.items));
  }
  ExprId rest = spec_.bytes("");  // after the items in front, or after the first one
  if (!never(item) && (!shape.prefix.empty() || merged.max_items > 1)) {
    const ExprId comma = task.counted ? spec_.sequence({spec_.bytes(","), spec_.tick(), json_.space()}) : json_.comma();
    const ExprId one = spec_.sequence({comma, item});
    rest = spec_.repeat(one, min > std::max<size_t>(1, shape.prefix.size()) ? 1 : 0, kNoLimit);
  } else if (min > std::max<size_t>(1, shape.prefix.size())) {
    rest = spec_.never();
  }
  ExprId list = rest;
  if (shape.prefix.empty()) {
    list = never(item) ? spec_.never() : spec_.sequence({item, rest});
    if (min == 0) list = spec_.choice({spec_.bytes(""), list});
  }
  for (size_t i = shape.prefix.size(); i-- > 0;) {
    MILLRACE_TRY(const ExprId one, value(shape.prefix[i]));
    list = i > 0 ? spec_.sequence({json_.comma(), one, list}) : spec_.sequence({one, list});
    if (i >= min) list = spec_.optional(list);
  }
  spec_.set_body(task.rule, json_.array_rest(list));
  return {};
}

// Every subset of a few values is a place of its own; from each one the values that are left lead on.
Result<ExprId> SchemaCompiler::unique_list(const ArrayShape& shape, const MergedSchema& merged) {
  const auto refuse = [&] {
    return Error::unsupported(fmt::format("JSON schema: {}/uniqueItems: is only supported for items from an enum of at most {} values, or with maxItems 1", merged.path, kMostUnique));
  };
  if (!shape.prefix.empty()) return refuse();
  MILLRACE_TRY(const std::vector<FlatSchema> alternatives, flattener_.flatten(shape.items));
  std::vector<SchemaJson> values;
  for (const FlatSchema& parts : alternatives) {
    MILLRACE_TRY(const MergedSchema item, merge_schema(parts, document_, notes_));
    if (!item.values) return refuse();
    for (const SchemaJson& value : *item.values) {
      MILLRACE_TRY(const bool allowed, allows_value(item, value, limits_));
      if (value.is_structured()) return refuse();
      if (allowed && std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
  }
  if (values.size() > kMostUnique) return refuse();
  const size_t subsets = size_t{1} << values.size();
  std::vector<ExprId> after(subsets, spec_.never());  // what may follow once these have come
  for (size_t used = subsets; used-- > 0;) {
    const auto count = static_cast<uint32_t>(__builtin_popcountll(used));
    std::vector<ExprId> ways;
    if (count >= merged.min_items) ways.push_back(spec_.bytes(""));
    for (size_t v = 0; v < values.size() && count < merged.max_items; ++v) {
      if (used >> v & 1) continue;
      // Rules, since the expressions meet again and again.
      const ExprId one = json_.literal(values[v]), next = after[used | size_t{1} << v];
      if (never(next)) continue;
      ways.push_back(count > 0 ? spec_.sequence({json_.comma(), one, next}) : spec_.sequence({one, next}));
    }
    if (ways.empty()) continue;
    const RuleId rule = spec_.add_rule(fmt::format("JSON schema: {}/uniqueItems", merged.path));
    spec_.set_body(rule, spec_.choice(std::move(ways)));
    after[used] = spec_.call(rule);
  }
  return after[0];
}

}  // namespace millrace
