#include "text/grammar/tick_ranges.h"

#include <algorithm>
#include <deque>

namespace millrace {
namespace {

// The edges of each state, indexed by source or by target.
class EdgesOf {
 public:
  EdgesOf(size_t states, std::span<const TickEdge> edges, int32_t TickEdge::*end)
      : edges_(edges), first_(states + 2, 0), order_(edges.size()) {
    for (const TickEdge& edge : edges) ++first_[static_cast<size_t>(edge.*end) + 2];
    for (size_t i = 2; i < first_.size(); ++i) first_[i] += first_[i - 1];
    for (size_t e = 0; e < edges.size(); ++e)
      order_[first_[static_cast<size_t>(edges[e].*end) + 1]++] = static_cast<uint32_t>(e);
  }
  size_t count(int32_t state) const {
    return first_[static_cast<size_t>(state) + 1] - first_[static_cast<size_t>(state)];
  }
  const TickEdge& at(int32_t state, size_t i) const { return edges_[order_[first_[static_cast<size_t>(state)] + i]]; }
  template <typename Visit>
  void each(int32_t state, Visit visit) const {
    for (size_t i = 0; i < count(state); ++i) visit(at(state, i));
  }

 private:
  std::span<const TickEdge> edges_;
  std::vector<uint32_t> first_, order_;
};

// Shortest paths to the end, in ticks.
void set_least(std::span<const uint8_t> accepting, const EdgesOf& before, std::vector<TickRange>& states) {
  std::deque<int32_t> queue;
  for (size_t s = 0; s < accepting.size(); ++s)
    if (accepting[s]) states[s].least = 0, queue.push_back(static_cast<int32_t>(s));
  while (!queue.empty()) {
    const int32_t to = queue.front();
    queue.pop_front();
    before.each(to, [&](const TickEdge& edge) {
      const uint32_t ticks = states[static_cast<size_t>(to)].least + edge.ticks;
      uint32_t& least = states[static_cast<size_t>(edge.from)].least;
      if (ticks >= least) return;
      least = ticks;
      edge.ticks ? queue.push_back(edge.from) : queue.push_front(edge.from);
    });
  }
}

// States that reach each other without a tick have the same range: groups are strongly connected components (Tarjan,
// 1972). -1: cannot reach the end.
class Groups {
 public:
  Groups(const std::vector<TickRange>& states, const EdgesOf& after) : states_(states), after_(after) {
    of.assign(states.size(), -1);
    order_.assign(states.size(), 0);
    low_.assign(states.size(), 0);
    for (size_t s = 0; s < states.size(); ++s)
      if (!states[s].empty() && order_[s] == 0) visit(static_cast<int32_t>(s));
  }
  std::vector<int32_t> of;
  int32_t count = 0;

 private:
  void enter(int32_t state) {
    order_[static_cast<size_t>(state)] = low_[static_cast<size_t>(state)] = ++entered_;
    open_.push_back(state);
    path_.emplace_back(state, 0);
  }
  void visit(int32_t root) {
    enter(root);
    while (!path_.empty()) {
      const int32_t state = path_.back().first;
      auto& low = low_[static_cast<size_t>(state)];
      if (path_.back().second == after_.count(state)) {
        path_.pop_back();
        if (!path_.empty()) {
          auto& caller = low_[static_cast<size_t>(path_.back().first)];
          caller = std::min(caller, low);
        }
        if (low == order_[static_cast<size_t>(state)]) close(state);
        continue;
      }
      const TickEdge& edge = after_.at(state, path_.back().second++);
      const auto to = static_cast<size_t>(edge.to);
      if (edge.ticks > 0 || states_[to].empty()) continue;
      if (order_[to] == 0)
        enter(edge.to);
      else if (of[to] < 0)
        low = std::min(low, order_[to]);
    }
  }
  void close(int32_t first) {
    for (int32_t state = -1; state != first; open_.pop_back()) {
      state = open_.back();
      of[static_cast<size_t>(state)] = count;
    }
    ++count;
  }

  const std::vector<TickRange>& states_;
  const EdgesOf& after_;
  std::vector<uint32_t> order_, low_;
  std::vector<int32_t> open_;
  std::vector<std::pair<int32_t, size_t>> path_;  // and the index of its next edge
  uint32_t entered_ = 0;
};

// Longest paths, from the end backwards. A group that never becomes known leads into a cycle; cycles between groups
// always tick, so it is unbounded.
std::vector<uint32_t> most_of_groups(std::span<const TickEdge> edges, const Groups& groups) {
  const auto leaves = [&](const TickEdge& edge) {
    const int32_t from = groups.of[static_cast<size_t>(edge.from)], to = groups.of[static_cast<size_t>(edge.to)];
    return from >= 0 && to >= 0 && (from != to || edge.ticks > 0);
  };
  std::vector<TickEdge> between;
  std::vector<uint32_t> unknown(static_cast<size_t>(groups.count), 0);
  for (const TickEdge& edge : edges) {
    if (!leaves(edge)) continue;
    between.push_back({groups.of[static_cast<size_t>(edge.from)], groups.of[static_cast<size_t>(edge.to)], edge.ticks});
    ++unknown[static_cast<size_t>(between.back().from)];
  }
  const EdgesOf before(unknown.size(), between, &TickEdge::to);
  std::vector<uint32_t> most(unknown.size(), 0);
  std::vector<int32_t> known;
  for (size_t g = 0; g < unknown.size(); ++g)
    if (unknown[g] == 0) known.push_back(static_cast<int32_t>(g));
  while (!known.empty()) {
    const int32_t to = known.back();
    known.pop_back();
    before.each(to, [&](const TickEdge& edge) {
      const auto from = static_cast<size_t>(edge.from);
      most[from] = std::max(most[from], most[static_cast<size_t>(to)] + edge.ticks);
      if (--unknown[from] == 0) known.push_back(edge.from);
    });
  }
  for (size_t g = 0; g < unknown.size(); ++g)
    if (unknown[g] > 0) most[g] = kNoLimit;
  return most;
}

// Whether the edges out of some group skip a number between its bounds. If none do, all numbers are reachable, by
// induction: each edge reduces the number by one or leads to a group that cannot return without a tick.
bool have_gaps(std::span<const uint8_t> accepting, std::span<const TickEdge> edges, const Groups& groups,
               const std::vector<TickRange>& states) {
  struct Way {
    int32_t group;
    TickRange range;
  };
  std::vector<Way> ways;
  for (size_t s = 0; s < accepting.size(); ++s)
    if (accepting[s]) ways.push_back({groups.of[s], {0, 0}});
  for (const TickEdge& edge : edges) {
    const int32_t from = groups.of[static_cast<size_t>(edge.from)], to = groups.of[static_cast<size_t>(edge.to)];
    if (from < 0 || to < 0 || (from == to && edge.ticks == 0)) continue;
    ways.push_back({from, states[static_cast<size_t>(edge.to)].plus(edge.ticks)});
  }
  std::ranges::sort(ways, [](const Way& a, const Way& b) {
    return a.group != b.group ? a.group < b.group : a.range.least < b.range.least;
  });
  uint32_t most = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const bool first = i == 0 || ways[i].group != ways[i - 1].group;
    if (!first && most != kNoLimit && ways[i].range.least > most + 1) return true;
    most = first ? ways[i].range.most : std::max(most, ways[i].range.most);
  }
  return false;
}

}  // namespace

Result<TickRanges> tick_ranges(std::span<const uint8_t> accepting, std::span<const TickEdge> edges,
                               CompileBudget* budget) {
  BudgetShare share(budget);
  constexpr int64_t kStateBytes = 96, kEdgeBytes = 80;  // all allocations here, including growing lists
  MILLRACE_TRY_VOID(share.resize(std::ssize(accepting) * kStateBytes + std::ssize(edges) * kEdgeBytes));
  MILLRACE_TRY_VOID(share.check(4 * (std::ssize(accepting) + std::ssize(edges))));
  TickRanges out;
  out.states.resize(accepting.size());
  const EdgesOf before(accepting.size(), edges, &TickEdge::to), after(accepting.size(), edges, &TickEdge::from);
  set_least(accepting, before, out.states);
  const Groups groups(out.states, after);
  const std::vector<uint32_t> most = most_of_groups(edges, groups);
  for (size_t s = 0; s < accepting.size(); ++s)
    if (groups.of[s] >= 0) out.states[s].most = most[static_cast<size_t>(groups.of[s])];
  out.gaps = have_gaps(accepting, edges, groups, out.states);
  return out;
}

}  // namespace millrace
