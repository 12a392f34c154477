#include "speculate/suffix_automaton.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <utility>

namespace millrace {
namespace {

// An automaton of n tokens has at most 2n - 1 states and 3n - 4 edges.
constexpr int64_t kStates = 2, kEdges = 3;
// The suffixes whose continuations are counted at each extension, from the longest on.
constexpr int64_t kCountedSuffixes = 16;
// A state with more edges finds them by hash. Most states have one edge, and walk no list.
constexpr int32_t kListed = 4;

size_t slots_for(int64_t tokens) { return std::bit_ceil(static_cast<size_t>(2 * kEdges * tokens)); }

}  // namespace

SuffixAutomaton::SuffixAutomaton(int64_t tokens) : capacity_(tokens), slots_(slots_for(tokens)) {
  states_.reserve(static_cast<size_t>(kStates * tokens));
  edges_.reserve(static_cast<size_t>(kEdges * tokens));
  roots_.reserve(kMaxScopes);
}

int64_t SuffixAutomaton::bytes(int64_t tokens) {
  return tokens * (kStates * static_cast<int64_t>(sizeof(State)) + kEdges * static_cast<int64_t>(sizeof(Edge))) +
         kMaxScopes * static_cast<int64_t>(sizeof(std::pair<uint64_t, int32_t>)) +
         static_cast<int64_t>(slots_for(tokens) * sizeof(int32_t));
}

void SuffixAutomaton::clear() {
  used_ = 0;
  states_.clear();
  edges_.clear();
  roots_.clear();
  std::ranges::fill(slots_, 0);
}

int32_t SuffixAutomaton::add_state(int32_t length, int32_t link) {
  assert(states_.size() < states_.capacity());
  states_.push_back({length, link, kNone, 0});
  return static_cast<int32_t>(states_.size()) - 1;
}

size_t SuffixAutomaton::home_of(int32_t from, TokenId token) const {
  uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(from)) << 32 | static_cast<uint32_t>(token);
  key = (key ^ key >> 31) * 0x9e3779b97f4a7c15u;
  return static_cast<size_t>(key >> 32) & (slots_.size() - 1);
}

size_t SuffixAutomaton::slot_of(int32_t from, TokenId token) const {
  for (size_t at = home_of(from, token);; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at] == 0) return at;
    const Edge& edge = edges_[static_cast<size_t>(slots_[at] - 1)];
    if (edge.from == from && edge.token == token) return at;
  }
}

int32_t SuffixAutomaton::find_edge(int32_t from, TokenId token) const {
  const State& state = states_[static_cast<size_t>(from)];
  if (state.degree > kListed) return slots_[slot_of(from, token)] - 1;
  int32_t at = state.edges;
  while (at != kNone && edges_[static_cast<size_t>(at)].token != token) at = edges_[static_cast<size_t>(at)].more;
  return at;
}

void SuffixAutomaton::prefetch_edge(int32_t from, TokenId token) const {
  const State& state = states_[static_cast<size_t>(from)];
  if (state.degree > kListed) {
    __builtin_prefetch(&slots_[home_of(from, token)]);
  } else if (state.edges != kNone) {
    __builtin_prefetch(&edges_[static_cast<size_t>(state.edges)]);
  }
}

void SuffixAutomaton::add_edge(int32_t from, TokenId token, int32_t to, uint32_t times) {
  assert(edges_.size() < edges_.capacity());
  State& state = states_[static_cast<size_t>(from)];
  edges_.push_back({from, token, to, times, extensions_, state.edges});
  state.edges = static_cast<int32_t>(edges_.size()) - 1;
  ++state.degree;
  if (state.degree < kListed + 1) return;
  // Those before are in the table already, but for the ones that were listed until now.
  const int32_t end = state.degree == kListed + 1 ? kNone : edges_.back().more;
  for (int32_t at = state.edges; at != end; at = edges_[static_cast<size_t>(at)].more)
    slots_[slot_of(from, edges_[static_cast<size_t>(at)].token)] = at + 1;
}

int32_t SuffixAutomaton::find_root(uint64_t scope) const {
  for (const auto& [known, state] : roots_)
    if (known == scope) return state;
  return kNone;
}

int32_t SuffixAutomaton::root(uint64_t scope) {
  if (const int32_t known = find_root(scope); known != kNone) return known;
  if (std::ssize(roots_) == kMaxScopes) return kNone;
  const int32_t state = private_root();
  if (state != kNone) roots_.emplace_back(scope, state);
  return state;
}

int32_t SuffixAutomaton::private_root() {
  if (room() < 1) return kNone;
  ++used_;
  return add_state(0, kNone);
}

// The target of state's edge stands for longer texts than state + token; they part here. Returns the shorter one's.
int32_t SuffixAutomaton::split(int32_t state, TokenId token, int32_t target) {
  const State old = states_[static_cast<size_t>(target)];
  const int32_t clone = add_state(states_[static_cast<size_t>(state)].length + 1, old.link);
  for (int32_t at = old.edges; at != kNone; at = edges_[static_cast<size_t>(at)].more) {
    const Edge edge = edges_[static_cast<size_t>(at)];
    add_edge(clone, edge.token, edge.to, edge.times);
    edges_.back().latest = edge.latest;
  }
  states_[static_cast<size_t>(target)].link = clone;
  for (int32_t at = state; at != kNone; at = states_[static_cast<size_t>(at)].link) {
    const int32_t edge = find_edge(at, token);
    if (edge == kNone || edges_[static_cast<size_t>(edge)].to != target) break;
    edges_[static_cast<size_t>(edge)].to = clone;
  }
  return clone;
}

// Counts that `token` followed the state's text and its next shorter suffixes, `suffixes` in all; all have that edge.
// Finds the states first, then their edges, so that the memory reads of the second part do not wait for each other.
void SuffixAutomaton::count(int32_t state, TokenId token, int64_t suffixes) {
  std::array<int32_t, kCountedSuffixes> counted;
  size_t found = 0;
  for (; std::cmp_less(found, suffixes) && state != kNone; state = states_[static_cast<size_t>(state)].link) {
    prefetch_edge(state, token);
    counted[found++] = state;
  }
  for (size_t i = 0; i < found; ++i) {
    Edge& edge = edges_[static_cast<size_t>(find_edge(counted[i], token))];
    ++edge.times;
    edge.latest = extensions_;
  }
}

int32_t SuffixAutomaton::extend(int32_t last, TokenId token) {
  if (room() < 1) return kNone;
  ++used_;
  ++extensions_;
  if (const int32_t known = find_edge(last, token); known != kNone) {  // the text so far has occurred before
    const int32_t target = edges_[static_cast<size_t>(known)].to;
    const bool exact = states_[static_cast<size_t>(target)].length == states_[static_cast<size_t>(last)].length + 1;
    const int32_t now = exact ? target : split(last, token, target);
    count(last, token, kCountedSuffixes);
    return now;
  }
  const int32_t now = add_state(states_[static_cast<size_t>(last)].length + 1, kNone);
  int32_t at = last, root = last, edge = kNone;
  int64_t counted = 0;
  for (; at != kNone && (edge = find_edge(at, token)) == kNone; at = states_[static_cast<size_t>(at)].link) {
    add_edge(at, token, now, counted < kCountedSuffixes ? 1 : 0);
    ++counted;
    root = at;
  }
  if (at == kNone) {
    states_[static_cast<size_t>(now)].link = root;  // of the scope: the end of the links
  } else {
    const int32_t target = edges_[static_cast<size_t>(edge)].to;
    const bool exact = states_[static_cast<size_t>(target)].length == states_[static_cast<size_t>(at)].length + 1;
    states_[static_cast<size_t>(now)].link = exact ? target : split(at, token, target);
    count(at, token, kCountedSuffixes - counted);
  }
  return now;
}

SuffixAutomaton::Match SuffixAutomaton::continued(Match match) const {
  while (match.state != kNone && states_[static_cast<size_t>(match.state)].edges == kNone) {
    match.state = states_[static_cast<size_t>(match.state)].link;
    match.length = match.state == kNone ? 0 : length(match.state);
  }
  return match;
}

SuffixAutomaton::Match SuffixAutomaton::advance(Match match, TokenId token) const {
  int32_t edge = kNone, root = match.state;
  while (match.state != kNone && (edge = find_edge(match.state, token)) == kNone) {
    root = match.state;
    match.state = states_[static_cast<size_t>(match.state)].link;
    if (match.state != kNone) match.length = length(match.state);
  }
  if (match.state == kNone) return {root, 0};
  return {edges_[static_cast<size_t>(edge)].to, match.length + 1};
}

SuffixAutomaton::Continuation SuffixAutomaton::likeliest(int32_t state) const {
  const Edge* best = nullptr;
  uint64_t all = 0;
  for (int32_t at = states_[static_cast<size_t>(state)].edges; at != kNone; at = edges_[static_cast<size_t>(at)].more) {
    const Edge& edge = edges_[static_cast<size_t>(at)];
    all += edge.times;
    if (!best || edge.times > best->times || (edge.times == best->times && edge.latest > best->latest)) best = &edge;
  }
  return {best->token, best->to, all == 0 ? 1.0 : static_cast<double>(best->times) / static_cast<double>(all)};
}

}  // namespace millrace
