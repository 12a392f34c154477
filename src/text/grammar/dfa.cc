#include "text/grammar/dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <span>
#include <unordered_map>

#include "text/grammar/nfa.h"

namespace millrace {
namespace {

uint64_t hash_of(std::span<const int32_t> v) {
  uint64_t h = v.size();
  for (int32_t x : v) h = (h ^ static_cast<uint32_t>(x)) * 0x9E3779B97F4A7C15ull, h ^= h >> 29;
  return h;
}

Error too_large(std::string_view what, int64_t limit) {
  return Error::unsupported(
      fmt::format("{}: too large, its automaton has more than {} states; simplify it", what, limit));
}

// Derives byte classes from the boundaries of all edge ranges. Returns one byte of each class.
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
      : nfa_(nfa), limits_(limits), what_(what), share_(limits.budget) {
    dfa_.share = BudgetShare(limits.budget);
  }

  Result<Dfa> build() {
    best_.resize(static_cast<size_t>(nfa_.levels));
    const auto marks = static_cast<int64_t>(nfa_.states.size() * (sizeof(uint32_t) + best_.size() * sizeof(Best)));
    MILLRACE_TRY_VOID(marks_share_.resize(marks));
    mark_.assign(nfa_.states.size(), 0);
    for (auto& level : best_) level.assign(nfa_.states.size(), {});
    slots_.assign(64, -1);
    std::bitset<257> cuts;
    for (const NfaEdge& edge : nfa_.edges) {
      if (edge.kind != NfaEdge::Kind::bytes) continue;
      cuts[edge.first] = true;
      cuts[size_t{edge.last} + 1] = true;
    }
    set_classes(cuts, dfa_);
    targets_.resize(static_cast<size_t>(dfa_.classes));
    add_state(closure(std::array{nfa_.start}, true, false), true);
    for (size_t at = 0; at < sets_.size(); ++at) {
      if (static_cast<int64_t>(sets_.size()) > limits_.dfa_states) return too_large(what_, limits_.dfa_states);
      expand(at);
      MILLRACE_TRY_VOID(share_.check(work_));
      work_ = 0;
      MILLRACE_TRY_VOID(share_.resize(bytes()));
      MILLRACE_TRY_VOID(dfa_.share.resize(dfa_.bytes()));
    }
    return std::move(dfa_);
  }

 private:
  struct Set {
    size_t first = 0, count = 0;
  };
  struct Best {  // the dominating copy found so far among corresponding states
    uint32_t epoch = 0;
    int32_t copy = 0;
  };

  int64_t bytes() const {
    int64_t lists = static_cast<int64_t>(found_.capacity() + stack_.capacity()) * 4;
    for (const auto& target : targets_) lists += static_cast<int64_t>(target.capacity()) * 4;
    return lists + static_cast<int64_t>(pool_.capacity() * sizeof(int32_t) + sets_.capacity() * sizeof(Set) +
                                        slots_.capacity() * sizeof(int32_t)) *
                       3 / 2;
  }

  std::span<const int32_t> set(size_t id) const { return std::span(pool_).subspan(sets_[id].first, sets_[id].count); }

  // For each level of nested copies around the state, visits the best copy known for the corresponding position.
  template <typename Visit>
  void for_each_copies(int32_t state, Visit visit) {
    for (int32_t c = nfa_.states[static_cast<size_t>(state)].copies; c >= 0;
         c = nfa_.copies[static_cast<size_t>(c)].parent) {
      const NfaCopies& copies = nfa_.copies[static_cast<size_t>(c)];
      const int32_t copy = (state - copies.base) / copies.size;
      Best& best = best_[static_cast<size_t>(copies.level)][static_cast<size_t>(state - copy * copies.size)];
      if (!visit(best, copies.open ? -copy : copy)) return;
    }
  }
  // Whether another reached state accepts all that this one accepts.
  bool dominated(int32_t state) {
    bool yes = false;
    for_each_copies(state,
                    [&](const Best& best, int32_t copy) { return !(yes = best.epoch == epoch_ && best.copy < copy); });
    return yes;
  }

  // The epsilon closure of `from`, in found_. Contains only states that matter: with non-empty edges, ticks, or the
  // accepting state.
  std::span<const int32_t> closure(std::span<const int32_t> from, bool at_begin, bool at_end) {
    ++epoch_;
    found_.clear();
    const auto reach = [&](int32_t state) {
      if (mark_[static_cast<size_t>(state)] == epoch_) return;
      mark_[static_cast<size_t>(state)] = epoch_;
      if (dominated(state)) return;
      for_each_copies(state, [&](Best& best, int32_t copy) { return best = {epoch_, copy}, true; });
      stack_.push_back(state);
    };
    for (int32_t state : from) reach(state);
    while (!stack_.empty()) {
      const int32_t state = stack_.back();
      stack_.pop_back();
      ++work_;
      bool matters = state == nfa_.accept || nfa_.states[static_cast<size_t>(state)].tick;
      for (int32_t e = nfa_.states[static_cast<size_t>(state)].edge; e >= 0;
           e = nfa_.edges[static_cast<size_t>(e)].sibling, ++work_) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        if (edge.kind == NfaEdge::Kind::empty || (edge.kind == NfaEdge::Kind::begin && at_begin) ||
            (edge.kind == NfaEdge::Kind::end && at_end))
          reach(edge.to);
        else if (edge.kind != NfaEdge::Kind::begin)
          matters = true;
      }
      if (matters) found_.push_back(state);
    }
    if (!best_.empty()) std::erase_if(found_, [&](int32_t state) { return dominated(state); });
    std::sort(found_.begin(), found_.end());
    return found_;
  }

  // The slot of a set in slots_, or the free slot for it.
  size_t slot_of(std::span<const int32_t> states) const {
    size_t slot = hash_of(states) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !std::ranges::equal(set(static_cast<size_t>(slots_[slot])), states))
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  int32_t add_state(std::span<const int32_t> states, bool first) {
    if (states.empty()) return -1;
    size_t slot = slot_of(states);
    // The first state is never shared: ^ matches only there.
    if (!first && slots_[slot] >= 0) return slots_[slot];
    const auto id = static_cast<int32_t>(sets_.size());
    sets_.push_back({pool_.size(), states.size()});
    pool_.insert(pool_.end(), states.begin(), states.end());
    if (!first) slots_[slot] = id;
    if (2 * sets_.size() > slots_.size()) {
      slots_.assign(2 * slots_.size(), -1);
      for (size_t other = 1; other < sets_.size(); ++other) slots_[slot_of(set(other))] = static_cast<int32_t>(other);
    }
    const auto size = static_cast<ptrdiff_t>(states.size());  // `states` aliases found_, which changes
    dfa_.ticks.push_back(std::any_of(pool_.end() - size, pool_.end(),
                                     [&](int32_t s) { return nfa_.states[static_cast<size_t>(s)].tick; }));
    const std::span<const int32_t> ending = closure(set(static_cast<size_t>(id)), first, true);
    dfa_.accepting.push_back(std::ranges::binary_search(ending, nfa_.accept));
    dfa_.calls.emplace_back();
    dfa_.next.insert(dfa_.next.end(), static_cast<size_t>(dfa_.classes), -1);
    return id;
  }

  void expand(size_t at) {
    for (auto& target : targets_) target.clear();
    std::vector<std::pair<Dfa::Call, std::vector<int32_t>>> calls;
    for (int32_t state : set(at)) {
      for (int32_t e = nfa_.states[static_cast<size_t>(state)].edge; e >= 0;
           e = nfa_.edges[static_cast<size_t>(e)].sibling, ++work_) {
        const NfaEdge& edge = nfa_.edges[static_cast<size_t>(e)];
        if (edge.kind == NfaEdge::Kind::bytes) {
          const size_t first = dfa_.class_of[edge.first], last = dfa_.class_of[edge.last];
          for (size_t c = first; c <= last; ++c) targets_[c].push_back(edge.to);
          work_ += static_cast<int64_t>(last - first);
        } else if (edge.kind == NfaEdge::Kind::call) {
          const Dfa::Call& call = nfa_.calls[static_cast<size_t>(edge.call)];
          auto found = std::ranges::find_if(calls, [&](const auto& c) { return c.first.same_call(call); });
          if (found == calls.end()) found = calls.insert(calls.end(), {call, {}});
          found->second.push_back(edge.to);
          work_ += found - calls.begin();
        }
      }
    }
    std::unordered_map<uint64_t, size_t> seen;  // classes by their target sets; many have the same
    for (size_t c = 0; c < targets_.size(); ++c) {
      auto& target = targets_[c];
      if (target.empty()) continue;
      std::sort(target.begin(), target.end());
      target.erase(std::unique(target.begin(), target.end()), target.end());
      const auto [entry, fresh] = seen.try_emplace(hash_of(target), c);
      const size_t like = entry->second;
      if (!fresh && targets_[like] == target) {
        dfa_.next[at * static_cast<size_t>(dfa_.classes) + c] =
            dfa_.next[at * static_cast<size_t>(dfa_.classes) + like];
        continue;
      }
      const int32_t to = add_state(closure(target, false, false), false);
      dfa_.next[at * static_cast<size_t>(dfa_.classes) + c] = to;
    }
    for (auto& [call, to] : calls) {
      call.to = add_state(closure(to, false, false), false);
      if (call.to >= 0) dfa_.calls[at].push_back(call);
    }
    dfa_.call_bytes += static_cast<int64_t>(dfa_.calls[at].capacity() * sizeof(Dfa::Call));
  }

  const Nfa& nfa_;
  const GrammarLimits& limits_;
  std::string_view what_;
  Dfa dfa_;
  std::vector<std::vector<int32_t>> targets_;  // [class], of the state under construction
  std::vector<Set> sets_;                      // [state of the Dfa], in pool_
  std::vector<int32_t> pool_;
  std::vector<int32_t> slots_;  // hash table of all sets but the first
  std::vector<uint32_t> mark_;
  std::vector<std::vector<Best>> best_;  // [level][state of the first copy]
  uint32_t epoch_ = 0;
  std::vector<int32_t> stack_, found_;
  int64_t work_ = 0;
  BudgetShare share_, marks_share_{share_};
};

// Removes dead states and numbers the rest in the order in which they are reached.
Result<Dfa> trimmed(const Dfa& dfa, CompileBudget* budget) {
  const auto n = static_cast<size_t>(dfa.size()), classes = static_cast<size_t>(dfa.classes);
  BudgetShare share(budget);
  MILLRACE_TRY_VOID(
      share.resize(static_cast<int64_t>(n * (4 * sizeof(int32_t) + 1) + dfa.next.size() * sizeof(int32_t))));
  // Reverse edges: the predecessors of `to` start at before[first[to]].
  std::vector<int32_t> first(n + 2, 0), before;
  for (int32_t to : dfa.next)
    if (to >= 0) ++first[static_cast<size_t>(to) + 2];
  for (size_t s = 2; s < n + 2; ++s) first[s] += first[s - 1];
  before.resize(static_cast<size_t>(first[n + 1]));
  for (size_t at = 0; at < dfa.next.size(); ++at)
    if (const int32_t to = dfa.next[at]; to >= 0)
      before[static_cast<size_t>(first[static_cast<size_t>(to) + 1]++)] = static_cast<int32_t>(at / classes);
  std::vector<uint8_t> live(n, 0);
  std::vector<int32_t> stack;
  for (size_t s = 0; s < n; ++s)
    if (dfa.accepting[s]) live[s] = 1, stack.push_back(static_cast<int32_t>(s));
  while (!stack.empty()) {
    const auto s = static_cast<size_t>(stack.back());
    stack.pop_back();
    for (int32_t at = first[s]; at < first[s + 1]; ++at) {
      const int32_t p = before[static_cast<size_t>(at)];
      if (!live[static_cast<size_t>(p)]) live[static_cast<size_t>(p)] = 1, stack.push_back(p);
    }
  }
  MILLRACE_TRY_VOID(share.check(static_cast<int64_t>(dfa.next.size())));
  Dfa out;
  out.share = BudgetShare(budget);
  out.classes = dfa.classes;
  out.class_of = dfa.class_of;
  std::vector<int32_t> id(n, -1), order{0};
  id[0] = 0;
  for (size_t at = 0; at < order.size(); ++at) {
    const auto s = static_cast<size_t>(order[at]);
    out.accepting.push_back(dfa.accepting[s]);
    out.ticks.push_back(dfa.ticks[s]);
    out.calls.emplace_back();
    for (size_t c = 0; c < classes; ++c) {
      int32_t to = dfa.next[s * classes + c];
      if (to >= 0 && !live[static_cast<size_t>(to)]) to = -1;
      if (to >= 0 && id[static_cast<size_t>(to)] < 0) {
        id[static_cast<size_t>(to)] = static_cast<int32_t>(order.size());
        order.push_back(to);
      }
      out.next.push_back(to < 0 ? -1 : id[static_cast<size_t>(to)]);
    }
    if (at % 256 == 255) MILLRACE_TRY_VOID(out.share.resize(out.bytes()));
  }
  MILLRACE_TRY_VOID(out.share.resize(out.bytes()));
  return out;
}

}  // namespace

int64_t Dfa::bytes() const {
  size_t all =
      next.capacity() * sizeof(int32_t) + accepting.capacity() + ticks.capacity() + calls.capacity() * sizeof(calls[0]);
  return static_cast<int64_t>(all) + call_bytes;
}

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

Result<Dfa> combine(const Dfa& a, const Dfa& b, DfaProduct product, const GrammarLimits& limits,
                    std::string_view what) {
  Dfa out;
  std::bitset<257> cuts;
  for (size_t byte = 1; byte < 256; ++byte)
    cuts[byte] = a.class_of[byte] != a.class_of[byte - 1] || b.class_of[byte] != b.class_of[byte - 1];
  const std::vector<uint8_t> samples = set_classes(cuts, out);
  out.share = BudgetShare(limits.budget);
  BudgetShare share(limits.budget);
  constexpr int64_t kEntryBytes = 64;  // per pair: map node, map slot and list entry
  std::unordered_map<uint64_t, int32_t> ids;
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const auto id_of = [&](std::pair<int32_t, int32_t> pair) {
    const uint64_t key = uint64_t{static_cast<uint32_t>(pair.first)} << 32 | static_cast<uint32_t>(pair.second);
    auto [entry, fresh] = ids.try_emplace(key, static_cast<int32_t>(pairs.size()));
    if (fresh) pairs.push_back(pair);
    return entry->second;
  };
  id_of({0, 0});
  for (size_t at = 0; at < pairs.size(); ++at) {
    if (static_cast<int64_t>(pairs.size()) > limits.dfa_states) return too_large(what, limits.dfa_states);
    MILLRACE_TRY_VOID(share.check(static_cast<int64_t>(samples.size())));
    if (at % 64 == 0) {
      MILLRACE_TRY_VOID(share.resize(static_cast<int64_t>(pairs.size()) * kEntryBytes));
      MILLRACE_TRY_VOID(out.share.resize(out.bytes()));
    }
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
  return trimmed(out, limits.budget);
}

}  // namespace millrace
