#include "text/grammar/dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>

#include "text/grammar/nfa.h"

namespace millrace {
namespace {

struct VectorHash {
  size_t operator()(const std::vector<int32_t>& v) const {
    uint64_t h = v.size();
    for (int32_t x : v) h = (h ^ static_cast<uint32_t>(x)) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
    return static_cast<size_t>(h);
  }
};

Error too_large(std::string_view what, int64_t limit) {
  return Error::unsupported(fmt::format("{}: too large, its automaton has more than {} states; simplify it", what, limit));
}

// Classes from the places where some edge's range begins or ends. Returns a byte of each class.
std::vector<uint8_t> set_classes(const std::bitset<257>& cuts, Dfa& dfa) {
  std::vector<uint8_t> samples;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == 0 || cuts[static_cast<size_t>(byte)]) samples.push_back(static_cast<uint8_t>(byte));
    dfa.class_of[static_cast<size_t>(byte)] = static_cast<uint8_t>(samples.size() - 1);
  }
  dfa.classes = static_cast<int32_t>(samples.size());
  return samples;
}

class Subsets {
 public:
  Subsets(const Nfa& nfa, const GrammarLimits& limits, std::string_view what)
      : nfa_(nfa), limits_(limits), what_(what), mark_(nfa.states.size(), 0) {}

  Result<Dfa> build() {
    std::bitset<257> cuts;
    for (const NfaEdge& edge : nfa_.edges) {
      if (edge.kind != NfaEdge::Kind::bytes) continue;
      cuts[edge.first] = true;
      cuts[size_t{edge.last} + 1] = true;
    }
    samples_ = set_classes(cuts, dfa_);
    add_state(closure({nfa_.start}, true, false), true);
    for (size_t at = 0; at < sets_.size(); ++at) {
      if (static_cast<int64_t>(sets_.size()) > limits_.dfa_states) return too_large(what_, limits_.dfa_states);
      expand(at);
    }
    return std::move(dfa_);
  }

 private:
  // What is reached without a byte. Keeps the states that matter: with edges other than empty ones, ticks, the end.
  std::vector<int32_t> closure(const std::vector<int32_t>& from, bool at_begin, bool at_end) {
    ++epoch_;
    std::vector<int32_t> stack, out;
    const auto reach = [&](int32_t state) {
      if (mark_[static_cast<size_t>(state)] == epoch_) return;
      mark_[static_cast<size_t>(state)] = epoch_;
      stack.push_back(state);
    };
    for (int32_t state : from) reach(state);
    while (!stack.empty()) {
      const int32_t state = stack.back();
      stack.pop_back();
      bool matters = state == nfa_.accept || nfa_.states[static_cast<size_t>(state)].tick;
      for (int32_t e = nfa_.states[static_cast<size_t>(state)].edge; e >= 0; e = nfa_.edges[static_cast<size_t>(e)].sibling) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        if (edge.kind == NfaEdge::Kind::empty || (edge.kind == NfaEdge::Kind::begin && at_begin) || (edge.kind == NfaEdge::Kind::end && at_end))
          reach(edge.to);
        else if (edge.kind != NfaEdge::Kind::begin)
          matters = true;
      }
      if (matters) out.push_back(state);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  int32_t add_state(std::vector<int32_t> set, bool first) {
    if (set.empty()) return -1;
    // The first state has a name of its own: what holds at the begin of the text holds there alone.
    if (!first) {
      auto found = ids_.find(set);
      if (found != ids_.end()) return found->second;
    }
    const auto id = static_cast<int32_t>(sets_.size());
    const std::vector<int32_t> ending = closure(set, first, true);
    dfa_.accepting.push_back(std::binary_search(ending.begin(), ending.end(), nfa_.accept));
    dfa_.ticks.push_back(std::ranges::any_of(set, [&](int32_t s) { return nfa_.states[static_cast<size_t>(s)].tick; }));
    dfa_.calls.emplace_back();
    dfa_.next.insert(dfa_.next.end(), static_cast<size_t>(dfa_.classes), -1);
    if (!first) ids_.emplace(set, id);
    sets_.push_back(std::move(set));
    return id;
  }

  void expand(size_t at) {
    std::vector<std::vector<int32_t>> targets(static_cast<size_t>(dfa_.classes));
    std::vector<std::pair<Dfa::Call, std::vector<int32_t>>> calls;
    for (int32_t state : sets_[at]) {
      for (int32_t e = nfa_.states[static_cast<size_t>(state)].edge; e >= 0; e = nfa_.edges[static_cast<size_t>(e)].sibling) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        if (edge.kind == NfaEdge::Kind::bytes) {
          for (size_t c = dfa_.class_of[edge.first]; c <= dfa_.class_of[edge.last]; ++c) targets[c].push_back(edge.to);
        } else if (edge.kind == NfaEdge::Kind::call) {
          const Dfa::Call& call = nfa_.calls[static_cast<size_t>(edge.call)];
          auto found = std::ranges::find_if(calls, [&](const auto& c) { return c.first.same_call(call); });
          if (found == calls.end()) found = calls.insert(calls.end(), {call, {}});
          found->second.push_back(edge.to);
        }
      }
    }
    std::map<std::vector<int32_t>, int32_t> seen;  // many classes lead to the same place
    for (size_t c = 0; c < targets.size(); ++c) {
      if (targets[c].empty()) continue;
      std::sort(targets[c].begin(), targets[c].end());
      auto [entry, fresh] = seen.try_emplace(targets[c], -1);
      if (fresh) entry->second = add_state(closure(targets[c], false, false), false);
      dfa_.next[at * static_cast<size_t>(dfa_.classes) + c] = entry->second;
    }
    for (auto& [call, to] : calls) {
      call.to = add_state(closure(to, false, false), false);
      if (call.to >= 0) dfa_.calls[at].push_back(call);
    }
  }

  const Nfa& nfa_;
  const GrammarLimits& limits_;
  std::string_view what_;
  Dfa dfa_;
  std::vector<uint8_t> samples_;
  std::vector<std::vector<int32_t>> sets_;
  std::unordered_map<std::vector<int32_t>, int32_t, VectorHash> ids_;
  std::vector<uint32_t> mark_;
  uint32_t epoch_ = 0;
};

// Without states that lead nowhere, in the order in which they are reached.
Dfa trimmed(const Dfa& dfa) {
  const auto n = static_cast<size_t>(dfa.size());
  std::vector<std::vector<int32_t>> before(n);
  for (size_t s = 0; s < n; ++s)
    for (int32_t c = 0; c < dfa.classes; ++c)
      if (int32_t to = dfa.next[s * static_cast<size_t>(dfa.classes) + static_cast<size_t>(c)]; to >= 0) before[static_cast<size_t>(to)].push_back(static_cast<int32_t>(s));
  std::vector<uint8_t> live(n, 0);
  std::vector<int32_t> stack;
  for (size_t s = 0; s < n; ++s)
    if (dfa.accepting[s]) live[s] = 1, stack.push_back(static_cast<int32_t>(s));
  while (!stack.empty()) {
    const int32_t s = stack.back();
    stack.pop_back();
    for (int32_t p : before[static_cast<size_t>(s)])
      if (!live[static_cast<size_t>(p)]) live[static_cast<size_t>(p)] = 1, stack.push_back(p);
  }
  Dfa out;
  out.classes = dfa.classes;
  out.class_of = dfa.class_of;
  std::vector<int32_t> id(n, -1), order{0};
  id[0] = 0;
  for (size_t at = 0; at < order.size(); ++at) {
    const auto s = static_cast<size_t>(order[at]);
    out.accepting.push_back(dfa.accepting[s]);
    out.ticks.push_back(dfa.ticks[s]);
    out.calls.emplace_back();
    for (int32_t c = 0; c < dfa.classes; ++c) {
      int32_t to = dfa.next[s * static_cast<size_t>(dfa.classes) + static_cast<size_t>(c)];
      if (to >= 0 && !live[static_cast<size_t>(to)]) to = -1;
      if (to >= 0 && id[static_cast<size_t>(to)] < 0) {
        id[static_cast<size_t>(to)] = static_cast<int32_t>(order.size());
        order.push_back(to);
      }
      out.next.push_back(to < 0 ? -1 : id[static_cast<size_t>(to)]);
    }
  }
  return out;
}

}  // namespace

bool Dfa::accepts(std::string_view text) const {
  int32_t state = size() > 0 ? 0 : -1;
  for (size_t i = 0; i < text.size() && state >= 0; ++i) state = step(state, static_cast<uint8_t>(text[i]));
  return state >= 0 && accepting[static_cast<size_t>(state)];
}

bool Dfa::empty() const {
  return std::ranges::none_of(accepting, [](uint8_t a) { return a != 0; });  // every state is reachable
}

Result<Dfa> make_dfa(const GrammarSpec& spec, ExprId expr, const GrammarLimits& limits, std::string_view what) {
  MILLRACE_TRY(const Nfa nfa, make_nfa(spec, expr, limits, what));
  MILLRACE_TRY(Dfa dfa, Subsets(nfa, limits, what).build());
  if (!dfa.accepting.empty()) return dfa;
  dfa.accepting = {0};
  dfa.ticks = {0};
  dfa.calls.emplace_back();
  dfa.next.assign(static_cast<size_t>(dfa.classes), -1);
  return dfa;
}

Result<Dfa> combine(const Dfa& a, const Dfa& b, DfaProduct product, const GrammarLimits& limits, std::string_view what) {
  Dfa out;
  std::bitset<257> cuts;
  for (size_t byte = 1; byte < 256; ++byte)
    cuts[byte] = a.class_of[byte] != a.class_of[byte - 1] || b.class_of[byte] != b.class_of[byte - 1];
  const std::vector<uint8_t> samples = set_classes(cuts, out);
  std::map<std::pair<int32_t, int32_t>, int32_t> ids;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto id_of = [&](std::pair<int32_t, int32_t> pair) {
    auto [entry, fresh] = ids.try_emplace(pair, static_cast<int32_t>(pairs.size()));
    if (fresh) pairs.push_back(pair);
    return entry->second;
  };
  id_of({0, 0});
  for (size_t at = 0; at < pairs.size(); ++at) {
    if (static_cast<int64_t>(pairs.size()) > limits.dfa_states) return too_large(what, limits.dfa_states);
    const auto [x, y] = pairs[at];
    const bool in_b = y >= 0 && b.accepting[static_cast<size_t>(y)];
    out.accepting.push_back(a.accepting[static_cast<size_t>(x)] && in_b == (product == DfaProduct::both));
    out.ticks.push_back(a.ticks[static_cast<size_t>(x)]);
    out.calls.emplace_back();
    for (uint8_t byte : samples) {
      const int32_t to_a = a.step(x, byte), to_b = y < 0 ? -1 : b.step(y, byte);
      const bool dead = to_a < 0 || (to_b < 0 && product == DfaProduct::both);
      out.next.push_back(dead ? -1 : id_of({to_a, to_b}));
    }
  }
  return trimmed(out);
}

}  // namespace millrace
