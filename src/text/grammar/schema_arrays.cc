// Arrays: prefix items with their own schemas, then any number of others. The number of items is counted by ticks at
// the commas; the first item and the prefix items do not tick.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr size_t kMaxPrefix = 1000;
constexpr size_t kMaxSubsets = 4'096;  // sets of the values used so far in a list of unique items
constexpr size_t kMaxUnique = 60;      // possible values of unique items
constexpr size_t kMaxListDemands = 4;  // `contains` and negated `items`, in one list
constexpr size_t kMaxStates = 4'000;   // positions times counts

uint32_t bounded(const SchemaJson& number) {
  return number.get<double>() >= kNoLimit ? kNoLimit : static_cast<uint32_t>(number.get<double>());
}

}  // namespace

Result<SchemaCompiler::ArrayShape> SchemaCompiler::array_shape(const FlatSchema& parts,
                                                               const MergedSchema& merged) const {
  ArrayShape shape;
  std::vector<std::pair<const SchemaJson*, const SchemaJson*>> rules;  // prefixItems, items
  std::vector<std::pair<size_t, const SchemaJson*>> unevaluated;       // first index, schema
  size_t longest = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].reference) continue;
    const SchemaJson& schema = *parts[p].schema;
    const auto find = [&](const char* key) {
      auto it = schema.find(key);
      return it == schema.end() ? nullptr : &*it;
    };
    const SchemaJson *prefix = find("prefixItems"), *items = find("items");
    if (items && items->is_array()) {  // drafts before 2020-12
      prefix = items;
      items = find("additionalItems");
    }
    if (prefix && !prefix->is_array())
      return Error::user(fmt::format("JSON schema: {}/prefixItems: must be a list", document_.path(schema)));
    MILLRACE_TRY_VOID(add_item_demands(schema, shape.demands));
    if (const SchemaJson* rest = find("unevaluatedItems"); rest && !items) {
      MILLRACE_TRY_VOID(unevaluated_items(parts, p, unevaluated));
    }
    if (prefix || items) rules.emplace_back(prefix, items);
    if (prefix) longest = std::max(longest, prefix->size());
  }
  for (const auto& [from, rest] : unevaluated) longest = std::max(longest, from);
  if (longest > kMaxPrefix)
    return Error::unsupported(fmt::format("JSON schema: {}: more than {} prefix items", merged.path, kMaxPrefix));
  longest = std::min<size_t>(longest, merged.max_items);
  for (size_t i = 0; i < longest; ++i) {
    SchemaConjunction one;
    for (const auto& [prefix, items] : rules) {
      if (prefix && i < prefix->size())
        one.push_back(&(*prefix)[i]);
      else if (items)
        one.push_back(items);
    }
    for (const auto& [from, rest] : unevaluated)
      if (i >= from) one.push_back(rest);
    shape.prefix.push_back(std::move(one));
  }
  for (const auto& [prefix, items] : rules)
    if (items) shape.items.push_back(items);
  for (const auto& [from, rest] : unevaluated) shape.items.push_back(rest);
  shape.more = merged.max_items > longest;
  return shape;
}

// Adds the first index that unevaluatedItems of the part at `at` applies to; nothing if all items are evaluated.
Result<void> SchemaCompiler::unevaluated_items(const FlatSchema& parts, size_t at,
                                               std::vector<std::pair<size_t, const SchemaJson*>>& out) const {
  size_t from = 0;
  const SchemaJson& own = *parts[at].schema;
  SchemaJson either = SchemaJson::array(
      {{{kIs, document_.link(own["unevaluatedItems"])}}});  // items that match `contains` are evaluated
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!sees(parts, at, p)) continue;
    const SchemaJson& other = *parts[p].schema;
    const SchemaJson *items = member(other, "items"), *prefix = member(other, "prefixItems");
    if ((items && !items->is_array()) || (p != at && other.contains("unevaluatedItems")) ||
        (items && other.contains("additionalItems")))
      return {};
    if (items) prefix = items;
    if (prefix && prefix->is_array()) from = std::max(from, prefix->size());
    if (const SchemaJson* wanted = member(other, "contains")) either.push_back({{kIs, document_.link(*wanted)}});
  }
  out.emplace_back(
      from, either.size() == 1 ? &own["unevaluatedItems"] : &document_.adopt({{"anyOf", std::move(either)}}, own));
  return {};
}

Result<void> SchemaCompiler::add_item_demands(const SchemaJson& schema, std::vector<ItemDemand>& out) const {
  if (const SchemaJson* some = member(schema, kSomeItem))
    out.push_back({some->at("from").get<size_t>(), &document_.linked(some->at("value")), &schema, 1, kNoLimit});
  const SchemaJson* wanted = member(schema, "contains");
  if (!wanted) return {};
  ItemDemand demand{0, wanted, &schema, 1, kNoLimit};
  for (const char* key : {"minContains", "maxContains"}) {
    const SchemaJson* bound = member(schema, key);
    if (!bound || document_.draft_before_2019()) continue;  // not a keyword in that draft
    if (!bound->is_number() || bound->get<double>() < 0)
      return Error::user(
          fmt::format("JSON schema: {}/{}: must be a whole number, 0 or more", document_.path(schema), key));
    (std::string_view(key) == "minContains" ? demand.min : demand.max) = bounded(*bound);
  }
  if (demand.min > 0 || demand.max != kNoLimit) out.push_back(demand);
  return {};
}

Result<void> SchemaCompiler::build_array(const Task& task) {
  const MergedSchema& merged = task.merged;
  MILLRACE_TRY(const ArrayShape shape, array_shape(task.parts, merged));
  const uint32_t min = merged.min_items;
  if (task.unique) {
    spec_.set_body(task.rule, json_.array_rest(*task.unique));
    return {};
  }
  if (!shape.demands.empty()) {
    MILLRACE_TRY(const ExprId list, demanding_list(shape, merged));
    spec_.set_body(task.rule, json_.array_rest(list));
    return {};
  }
  ExprId item = spec_.never();
  if (shape.more) {
    MILLRACE_TRY(item, value(shape.items));
  }
  ExprId rest = spec_.bytes("");  // after the prefix items, or after the first item
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

// All possible values of the items, or nullopt if there are many.
Result<std::optional<std::vector<SchemaJson>>> SchemaCompiler::few_values(const SchemaConjunction& items) {
  MILLRACE_TRY(const std::vector<FlatSchema> alternatives, flattener_.flatten(items));
  std::vector<SchemaJson> values;
  for (const FlatSchema& parts : alternatives) {
    MILLRACE_TRY(const MergedSchema item, merge_schema(parts, document_, notes_));
    std::vector<SchemaJson> candidates;
    if (item.values) {
      candidates = *item.values;
    } else if ((item.types & ~(kNull | kBoolean)) == 0) {
      candidates = {nullptr, true, false};
    } else if (item.types == kInteger && !item.numbers.least.empty() && !item.numbers.most.empty()) {
      constexpr double kFarthest = 1e9;  // bounds of more digits are not listed
      const auto edge = [](const NumberBounds::Bound& b) {
        const double size = b.value.whole.size() > 9 ? kFarthest : std::stod(b.value.whole);
        return b.value.negative ? -size : size;
      };
      const double first = edge(std::ranges::max(item.numbers.least, {}, edge));
      const double last = edge(std::ranges::min(item.numbers.most, {}, edge));
      const bool far = std::max(std::fabs(first), std::fabs(last)) >= kFarthest;
      if (far || last - first > kMaxUnique) return std::optional<std::vector<SchemaJson>>();
      for (auto v = static_cast<int64_t>(first) - 1; v <= static_cast<int64_t>(last) + 1; ++v)
        candidates.emplace_back(v);
    } else {
      return std::optional<std::vector<SchemaJson>>();
    }
    for (const SchemaJson& value : candidates) {
      if (value.is_structured()) return std::optional<std::vector<SchemaJson>>();
      MILLRACE_TRY(const bool allowed, allows_value(item, value, limits_));
      if (allowed && std::ranges::find(values, value) == values.end()) values.push_back(value);
    }
  }
  return std::optional(std::move(values));
}

// A node for every subset of the possible values, with an edge for each unused value. nullopt if there are too many
// values.
Result<std::optional<ExprId>> SchemaCompiler::unique_list(const ArrayShape& shape, const MergedSchema& merged) {
  if (!shape.prefix.empty() || !shape.demands.empty()) return std::optional<ExprId>();
  MILLRACE_TRY(const auto values, few_values(shape.items));
  if (!values || values->size() > kMaxUnique) return std::optional<ExprId>();
  ListGraph graph;
  std::map<uint64_t, size_t> nodes;  // by the set of values used
  std::vector<uint64_t> order;
  const auto node_of = [&](uint64_t used) {
    auto [entry, fresh] = nodes.try_emplace(used, order.size());
    if (fresh) {
      order.push_back(used);
      graph.add(static_cast<uint32_t>(__builtin_popcountll(used)) >= merged.min_items);
    }
    return entry->second;
  };
  std::vector<ExprId> items;
  for (const SchemaJson& value : *values) items.push_back(json_.literal(value));
  node_of(0);
  for (size_t at = 0; at < order.size(); ++at) {
    const uint64_t used = order[at];
    if (order.size() > kMaxSubsets) return std::optional<ExprId>();
    if (static_cast<uint32_t>(__builtin_popcountll(used)) >= merged.max_items) continue;
    for (size_t v = 0; v < values->size(); ++v) {
      if (used >> v & 1) continue;
      const size_t to = node_of(used | uint64_t{1} << v);
      graph.edges[at].push_back({items[v], to});
    }
  }
  MILLRACE_TRY(const ExprId list, list_graph(graph));
  return std::optional(list);
}

// Lists that must contain certain items: a node for each position and number of such items. Without a maximum, matching
// items need not be distinguished from others: some parse counts them.
Result<ExprId> SchemaCompiler::demanding_list(const ArrayShape& shape, const MergedSchema& merged) {
  const auto& demands = shape.demands;
  const auto refuse = [&](std::string_view why) {
    return Error::unsupported(fmt::format("JSON schema: {}/contains: {}", merged.path, why));
  };
  if (demands.size() > kMaxListDemands) return refuse("more than 4 such requirements on one list are not supported");
  size_t last = std::max<size_t>(shape.prefix.size(), merged.min_items);  // position from which all items are alike
  if (merged.max_items != kNoLimit) last = std::max<size_t>(last, merged.max_items);
  std::vector<uint32_t> caps;
  double states = static_cast<double>(last) + 1;
  for (const ItemDemand& demand : demands) {
    if (demand.min > demand.max) return spec_.never();
    last = std::max(last, demand.from);
    caps.push_back(demand.max == kNoLimit ? demand.min : demand.max);
    states *= static_cast<double>(caps.back()) + 1;
  }
  if (states > static_cast<double>(kMaxStates)) return refuse("too many states with the bounds of the list");
  ListGraph graph;
  using Place = std::pair<size_t, std::vector<uint32_t>>;
  std::map<Place, size_t> nodes;
  std::vector<Place> order;
  const auto node_of = [&](const Place& place) {
    auto [entry, fresh] = nodes.try_emplace(place, order.size());
    if (fresh) {
      bool done = place.first >= merged.min_items;
      for (size_t d = 0; d < demands.size(); ++d) done &= place.second[d] >= demands[d].min;
      order.push_back(place);
      graph.add(done);
    }
    return entry->second;
  };
  node_of({0, std::vector<uint32_t>(demands.size(), 0)});
  for (size_t at = 0; at < order.size(); ++at) {
    const Place place = order[at];
    if (merged.max_items != kNoLimit && place.first >= merged.max_items) continue;
    const SchemaConjunction& plain = place.first < shape.prefix.size() ? shape.prefix[place.first] : shape.items;
    for (size_t kinds = 0; kinds < size_t{1} << demands.size(); ++kinds) {  // what the item counts as
      Place next{std::min(place.first + 1, last), place.second};
      SchemaConjunction item = plain;
      bool possible = true;
      for (size_t d = 0; d < demands.size() && possible; ++d) {
        const bool counts = kinds >> d & 1, bounded_above = demands[d].max != kNoLimit;
        const bool open = place.first >= demands[d].from && (bounded_above || place.second[d] < caps[d]);
        if (!open || (counts && place.second[d] >= caps[d])) possible = !counts;
        if (!possible || !open) continue;
        if (counts)
          ++next.second[d], item.push_back(demands[d].wanted);
        else if (bounded_above)
          item.push_back(&flattener_.not_of(*demands[d].wanted));
      }
      if (!possible) continue;
      MILLRACE_TRY(const ExprId one, value(item));
      if (never(one)) continue;
      const size_t to = node_of(next);
      graph.edges[at].push_back({one, to});
    }
  }
  return list_graph(graph);
}

}  // namespace millrace
