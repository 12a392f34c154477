// Lists whose items depend on earlier ones: a graph of allowed successors, compiled to an automaton that calls a rule
// for each item. So a node costs two states, however large its items are.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr size_t kMaxNodes = 4'096;
constexpr size_t kMaxEdges = 100'000;

}  // namespace

ExprId SchemaCompiler::as_rule(const std::string& name, ExprId body) {
  auto [entry, fresh] = item_rules_.try_emplace(body, -1);
  if (fresh) {
    entry->second = spec_.add_rule(name);
    spec_.set_body(entry->second, body);
  }
  return spec_.call(entry->second);
}

Result<ExprId> SchemaCompiler::list_graph(const ListGraph& graph) {
  if (graph.done.size() > kMaxNodes)
    return Error::unsupported(
        fmt::format("JSON schema: the order of members in a list or an object takes more than {} states", kMaxNodes));
  size_t edges = 0;
  for (const auto& some : graph.edges) edges += some.size();
  if (edges > kMaxEdges)
    return Error::unsupported(fmt::format(
        "JSON schema: the order of members in a list or an object takes more than {} transitions", kMaxEdges));
  if (limits_.budget) MILLRACE_TRY_VOID(limits_.budget->check());
  if (comma_ < 0) {
    comma_ = spec_.add_rule("comma");
    spec_.set_body(comma_, json_.comma());
  }
  // State 0: the start. After an item: 1 + 2 * node; after the comma that follows: 2 + 2 * node.
  Dfa dfa;
  const size_t states = 1 + 2 * graph.done.size();
  dfa.next.assign(states, -1);
  dfa.accepting.assign(states, 0);
  dfa.ticks.assign(states, 0);
  dfa.calls.resize(states);
  for (size_t n = 0; n < graph.done.size(); ++n) {
    const size_t after = 1 + 2 * n, before = 2 + 2 * n;
    dfa.accepting[after] = graph.done[n];
    if (!graph.edges[n].empty()) dfa.calls[after].push_back({comma_, 0, kNoLimit, static_cast<int32_t>(before)});
    for (const ListGraph::Edge& edge : graph.edges[n]) {
      if (never(edge.item)) continue;
      const ExprId item = as_rule("an item", edge.item);
      dfa.calls[before].push_back({spec_.at(item).rule, 0, kNoLimit, static_cast<int32_t>(1 + 2 * edge.to)});
    }
  }
  dfa.accepting[0] = graph.done[0];
  dfa.calls[0] = dfa.calls[2];
  return automaton(std::move(dfa));
}

// Members in order ('1': once, '?': at most once, '*': any number of times), then each of `last`, with the total number
// within the schema's bounds. Repeatable members have arbitrary names, possibly the same, so they count only towards
// the maximum.
Result<ExprId> SchemaCompiler::counted_members(const std::vector<ExprId>& members, const std::string& counts,
                                               const std::vector<ExprId>& last, const MergedSchema& merged) {
  std::vector<ExprId> all = members;
  all.insert(all.end(), last.begin(), last.end());
  const std::string kinds = counts + std::string(last.size(), '1');
  const uint32_t most = merged.max_properties;
  const bool open = counts.find('*') != std::string::npos;
  // plan_counts() enumerates an open list only where the required members and `last` reach the minimum.
  const uint32_t least = open ? 0 : merged.min_properties;
  const size_t size = all.size();
  size_t cap = most == kNoLimit ? least : most;  // larger counts are equivalent
  if (!open) cap = std::min(cap, size);
  if (static_cast<double>(size + 1) * (static_cast<double>(cap) + 1) > static_cast<double>(kMaxNodes))
    return Error::unsupported(fmt::format(
        "JSON schema: {}: bounds on the number of its {} properties take too many states", merged.path, size));
  const size_t width = cap + 1;
  ListGraph graph;  // node: first allowed member, number of members so far
  for (size_t at = 0; at <= size; ++at)
    for (size_t count = 0; count < width; ++count) {
      const size_t node = graph.add(kinds.find('1', at) == std::string::npos && count >= least);
      if (most != kNoLimit && count >= most) continue;
      for (size_t next = at; next < size; ++next) {
        const size_t after = kinds[next] == '*' ? next : next + 1;
        graph.edges[node].push_back({all[next], after * width + std::min(count + 1, width - 1)});
        if (kinds[next] == '1') break;
      }
    }
  return list_graph(graph);
}

}  // namespace millrace
