#include "text/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <span>
#include <utility>

namespace millrace {
namespace {

// Backward reachability over the automata of all rules. Finds the states from which the end of their rule can be
// reached: a call is passable once the first state of its rule is live and, if the call bounds the ticks, once its rule
// can end with such a number.
class Backwards {
 public:
  static Result<Backwards> create(std::span<const Dfa* const> rules, CompileBudget* budget) {
    Backwards out;
    out.share_ = BudgetShare(budget);
    out.budget_ = budget;
    int64_t states = 0, steps = 0, calls = 0, bounded = 0;
    for (const Dfa* rule : rules) {
      out.base_.push_back(static_cast<int32_t>(states));
      states += rule->size();
      out.for_each(*rule, 0, [&](int32_t, int32_t, const Dfa::Call* call) {
        !call ? ++steps : ++calls;
        bounded += call && bounds(*call);
      });
    }
    MILLRACE_TRY_VOID(out.share_.resize((steps + calls) * static_cast<int64_t>(sizeof(Step)) +
                                        calls * static_cast<int64_t>(sizeof(CallSite)) + states * 16 +
                                        std::ssize(rules) * 48 + bounded * static_cast<int64_t>(sizeof(Bounded) + 8)));
    MILLRACE_TRY_VOID(out.share_.check(steps + calls));
    out.rules_.assign(rules.begin(), rules.end());
    out.first_.assign(static_cast<size_t>(states) + 2, 0);
    out.first_call_.assign(rules.size() + 2, 0);
    out.steps_.resize(static_cast<size_t>(steps + calls));
    out.calls_.resize(static_cast<size_t>(calls));
    out.bounded_.reserve(static_cast<size_t>(bounded));
    out.each([&](int32_t, int32_t to, const Dfa::Call* call) {
      ++out.first_[static_cast<size_t>(to) + 2];
      if (call) ++out.first_call_[static_cast<size_t>(call->rule) + 2];
    });
    for (auto* first : {&out.first_, &out.first_call_})
      for (size_t i = 2; i < first->size(); ++i) (*first)[i] += (*first)[i - 1];
    out.each([&](int32_t from, int32_t to, const Dfa::Call* call) {
      Step& step = out.steps_[static_cast<size_t>(out.first_[static_cast<size_t>(to) + 1]++)];
      step.from = from;
      if (!call) return;
      step.called = call->rule;
      if (bounds(*call)) {
        step.called = kFirstBounded - static_cast<int32_t>(out.bounded_.size());
        out.bounded_.push_back({from, to, *call});
      }
      out.calls_[static_cast<size_t>(out.first_call_[static_cast<size_t>(call->rule) + 1]++)] = {step, to};
    });
    for (size_t r = 0, next = 0; r < rules.size(); ++r) {
      out.first_bounded_.push_back(next);
      while (next < out.bounded_.size() && out.rule_of(out.bounded_[next].from) == r) ++next;
    }
    return out;
  }

  // Finds the states from which the end can be reached.
  Result<void> find_live() {
    start();
    std::vector<size_t> asked;  // counted rules with bounded calls
    for (const Bounded& bounded : bounded_) asked.push_back(static_cast<size_t>(bounded.call.rule));
    std::ranges::sort(asked);
    asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
    changed_.assign(asked.empty() ? 0 : rules_.size(), 0);
    std::vector<TickRanges> ranges(asked.size());
    for (bool more = true; more;) {
      run(true);
      more = false;
      for (size_t i = 0; i < asked.size(); ++i) {
        if (!std::exchange(changed_[asked[i]], uint8_t{0}) || !begins(asked[i])) continue;
        MILLRACE_TRY(ranges[i], ranges_of(asked[i]));
      }
      for (Bounded& bounded : bounded_) {
        const auto rule = static_cast<size_t>(bounded.call.rule);
        if (bounded.passable || !begins(rule)) continue;
        const auto at = static_cast<size_t>(std::ranges::lower_bound(asked, rule) - asked.begin());
        if (!can_end(ranges[at], bounded.call)) continue;
        bounded.passable = more = true;
        changed_[rule_of(bounded.from)] = 1;
        if (live_[static_cast<size_t>(bounded.to)]) reach(bounded.from);
      }
      MILLRACE_TRY_VOID(share_.check(std::ssize(bounded_) + std::ssize(asked)));
    }
    return {};
  }
  // The same without consuming a byte.
  void find_empty() {
    start();
    changed_.clear();
    run(false);
  }
  bool live(size_t rule, int32_t state) const { return live_[static_cast<size_t>(base_[rule] + state)] != 0; }
  bool begins(size_t rule) const { return live(rule, 0); }
  // Based on the calls known to be passable so far.
  Result<TickRanges> ranges_of(size_t rule) const {
    const Dfa& dfa = *rules_[rule];
    std::vector<TickEdge> edges;
    Passable passable(*this, rule);
    for_each(dfa, 0, [&](int32_t from, int32_t to, const Dfa::Call* call) {
      if (call ? passable(*call) : live(rule, to))
        edges.push_back({from, to, call ? 0u : uint32_t{dfa.ticks[static_cast<size_t>(to)]}});
    });
    return tick_ranges(dfa.accepting, edges, budget_);
  }
  // Tells whether calls of a rule are passable. Must be called for all of them in order.
  class Passable {
   public:
    Passable(const Backwards& of, size_t rule) : of_(of), rule_(rule), next_(of.first_bounded_[rule]) {}
    bool operator()(const Dfa::Call& call) {
      const bool sure = !bounds(call) || of_.bounded_[next_++].passable;
      return sure && of_.begins(static_cast<size_t>(call.rule)) && of_.live(rule_, call.to);
    }

   private:
    const Backwards& of_;
    size_t rule_, next_;
  };

 private:
  static constexpr int32_t kFirstBounded = -2;  // and below
  struct Step {
    int32_t from = 0;
    int32_t called = -1;  // rule, or kFirstBounded minus the index of a bounded call
  };
  struct CallSite {
    Step step;
    int32_t to = 0;
  };
  struct Bounded {
    int32_t from = 0, to = 0;
    Dfa::Call call;
    bool passable = false;
  };
  static bool bounds(const Dfa::Call& call) { return call.need > 0 || call.room != kNoLimit; }
  // In a range with gaps only the bounds are known to be reachable.
  static bool can_end(const TickRanges& ranges, const Dfa::Call& call) {
    const TickRange& range = ranges.states[0];
    if (call.need > call.room) return false;
    if (!ranges.gaps) return range.meets(call.need, call.room);
    const auto within = [&](uint32_t n) { return n != kNoLimit && n >= call.need && n <= call.room; };
    return within(range.least) || within(range.most);
  }

  void start() {
    live_.assign(first_.size() - 2, 0);
    for (size_t r = 0; r < rules_.size(); ++r)
      for (int32_t s = 0; s < rules_[r]->size(); ++s)
        if (rules_[r]->accepting[static_cast<size_t>(s)]) reach(base_[r] + s);
  }
  void reach(int32_t state) {
    if (!std::exchange(live_[static_cast<size_t>(state)], uint8_t{1})) stack_.push_back(state);
  }
  size_t rule_of(int32_t state) const {
    return static_cast<size_t>(std::ranges::upper_bound(base_, state) - base_.begin()) - 1;
  }
  bool leads_on(const Step& step, bool by_bytes) const {
    if (step.called == -1) return by_bytes;
    if (step.called >= 0) return begins(static_cast<size_t>(step.called));
    const Bounded& bounded = bounded_[static_cast<size_t>(kFirstBounded - step.called)];
    return by_bytes ? bounded.passable : bounded.call.need == 0 && begins(static_cast<size_t>(bounded.call.rule));
  }
  // Propagates from the states on the stack.
  void run(bool by_bytes) {
    while (!stack_.empty()) {
      const int32_t state = stack_.back();
      stack_.pop_back();
      for (int32_t i = first_[static_cast<size_t>(state)]; i < first_[static_cast<size_t>(state) + 1]; ++i)
        if (const Step& step = steps_[static_cast<size_t>(i)]; leads_on(step, by_bytes)) reach(step.from);
      const size_t r = rule_of(state);
      if (!changed_.empty()) changed_[r] = 1;
      if (base_[r] != state) continue;  // not a first state
      for (int32_t i = first_call_[r]; i < first_call_[r + 1]; ++i) {
        const auto& [step, to] = calls_[static_cast<size_t>(i)];
        if (!live_[static_cast<size_t>(to)] || !leads_on(step, by_bytes)) continue;
        reach(step.from);
        if (!changed_.empty()) changed_[rule_of(step.from)] = 1;
      }
    }
  }

  template <typename Visit>
  static void for_each(const Dfa& dfa, int32_t base, Visit visit) {
    const auto classes = static_cast<size_t>(dfa.classes);
    for (int32_t s = 0; s < dfa.size(); ++s) {
      int32_t before = -1;
      for (size_t c = 0; c < classes; ++c) {
        const int32_t to = dfa.next[static_cast<size_t>(s) * classes + c];
        if (to >= 0 && to != before) visit(base + s, base + to, nullptr);
        before = to;
      }
      for (const Dfa::Call& call : dfa.calls[static_cast<size_t>(s)]) visit(base + s, base + call.to, &call);
    }
  }
  template <typename Visit>
  void each(Visit visit) const {
    for (size_t r = 0; r < rules_.size(); ++r) for_each(*rules_[r], base_[r], visit);
  }

  std::vector<const Dfa*> rules_;
  std::vector<int32_t> base_;                // [rule]: its first state
  std::vector<int32_t> first_, first_call_;  // [state], [rule]: first entry in steps_ and calls_ leading there
  std::vector<Step> steps_;
  std::vector<CallSite> calls_;
  std::vector<Bounded> bounded_;       // ordered by rule, then by call
  std::vector<size_t> first_bounded_;  // [rule]
  std::vector<uint8_t> live_;          // [state]
  std::vector<uint8_t> changed_;       // [rule]: has new live states or passable calls; empty if unused
  std::vector<int32_t> stack_;
  CompileBudget* budget_ = nullptr;
  BudgetShare share_;
};

std::string content(const Dfa& dfa) {
  constexpr int32_t kLargest = 512;
  if (dfa.size() > kLargest) return {};
  for (const auto& calls : dfa.calls)
    if (!calls.empty()) return {};
  std::string out(reinterpret_cast<const char*>(dfa.class_of.data()), 256);
  out.append(reinterpret_cast<const char*>(dfa.accepting.data()), dfa.accepting.size());
  out.append(reinterpret_cast<const char*>(dfa.ticks.data()), dfa.ticks.size());
  out.append(reinterpret_cast<const char*>(dfa.next.data()), dfa.next.size() * sizeof(int32_t));
  return out;
}

}  // namespace

Result<Grammar> Grammar::create(const GrammarSpec& spec, const GrammarLimits& limits) {
  Grammar grammar;
  int64_t total = 0;
  BudgetShare share(limits.budget);
  if (static_cast<int64_t>(spec.rules().size()) > limits.rules)
    return Error::unsupported(fmt::format("grammar: more than {} rules", limits.rules));
  MILLRACE_TRY_VOID(share.resize(static_cast<int64_t>(spec.rules().size() * (sizeof(RuleTable) + 64))));
  grammar.rules_.reserve(spec.rules().size());
  for (const GrammarSpec::Rule& rule : spec.rules()) {
    RuleTable table;
    MILLRACE_TRY(table.dfa, make_dfa(spec, rule.body, limits, rule.name));
    total += table.dfa.size();
    if (total > limits.total_states)
      return Error::unsupported(
          fmt::format("grammar: too large, its rules have more than {} states; simplify it", limits.total_states));
    grammar.rules_.push_back(std::move(table));
  }
  MILLRACE_TRY_VOID(grammar.keep_productive(spec, limits.budget));
  grammar.find_used(spec.root);
  MILLRACE_TRY_VOID(grammar.check_left_recursion(spec));
  grammar.set_classes();
  MILLRACE_TRY_VOID(share.grow(total * 32));
  grammar.number_states(spec.root);
  return grammar;
}

Result<void> Grammar::keep_productive(const GrammarSpec& spec, CompileBudget* budget) {
  std::vector<const Dfa*> dfas;
  for (const RuleTable& rule : rules_) dfas.push_back(&rule.dfa);
  MILLRACE_TRY(Backwards backwards, Backwards::create(dfas, budget));
  MILLRACE_TRY_VOID(backwards.find_live());
  if (!backwards.begins(static_cast<size_t>(spec.root))) return Error::user("grammar: no text satisfies it");
  for (size_t r = 0; r < rules_.size(); ++r) {
    RuleTable& rule = rules_[r];
    rule.counted = std::ranges::any_of(rule.dfa.ticks, [](uint8_t t) { return t != 0; });
    if (rule.counted && backwards.begins(r)) {
      MILLRACE_TRY(TickRanges ranges, backwards.ranges_of(r));
      if (ranges.gaps)
        return Error::unsupported(fmt::format(
            "grammar: rule '{}' cannot be counted: it cannot produce every number between its minimum and its maximum",
            spec.rules()[r].name));
      rule.ranges = std::move(ranges.states);
      MILLRACE_TRY_VOID(rule.dfa.share.grow(static_cast<int64_t>(rule.ranges.capacity() * sizeof(TickRange))));
    }
  }
  for (size_t r = 0; r < rules_.size(); ++r) {
    Dfa& dfa = rules_[r].dfa;
    for (int32_t& to : dfa.next)
      if (to >= 0 && !backwards.live(r, to)) to = -1;
    Backwards::Passable passable(backwards, r);
    for (auto& calls : dfa.calls) std::erase_if(calls, [&](const Dfa::Call& call) { return !passable(call); });
  }
  backwards.find_empty();
  for (size_t r = 0; r < rules_.size(); ++r) rules_[r].nullable = backwards.begins(r);
  return {};
}

void Grammar::find_used(RuleId root) {
  std::vector<RuleId> stack{root};
  rules_[static_cast<size_t>(root)].used = true;
  while (!stack.empty()) {
    const RuleId r = stack.back();
    stack.pop_back();
    for (const auto& calls : rules_[static_cast<size_t>(r)].dfa.calls)
      for (const Dfa::Call& call : calls)
        if (!rules_[static_cast<size_t>(call.rule)].used)
          rules_[static_cast<size_t>(call.rule)].used = true, stack.push_back(call.rule);
  }
}

Result<void> Grammar::check_left_recursion(const GrammarSpec& spec) const {
  const size_t n = rules_.size();
  std::vector<std::vector<RuleId>> left(n);  // rules called before any byte
  for (size_t r = 0; r < n; ++r) {
    const Dfa& dfa = rules_[r].dfa;
    std::vector<uint8_t> seen(static_cast<size_t>(dfa.size()), 0);
    std::vector<int32_t> stack{0};
    while (!stack.empty()) {
      const auto s = static_cast<size_t>(stack.back());
      stack.pop_back();
      for (const Dfa::Call& call : dfa.calls[s]) {
        left[r].push_back(call.rule);
        if (rules_[static_cast<size_t>(call.rule)].nullable && !seen[static_cast<size_t>(call.to)])
          seen[static_cast<size_t>(call.to)] = 1, stack.push_back(call.to);
      }
    }
  }
  std::vector<uint8_t> state(n, 0);  // 1: on the path, 2: done
  for (size_t root = 0; root < n; ++root) {
    if (state[root] || !rules_[root].used) continue;
    std::vector<std::pair<size_t, size_t>> path{{root, 0}};
    state[root] = 1;
    while (!path.empty()) {
      auto& [r, at] = path.back();
      if (at == left[r].size()) {
        state[r] = 2;
        path.pop_back();
        continue;
      }
      const auto to = static_cast<size_t>(left[r][at++]);
      if (state[to] == 1)
        return Error::user(
            fmt::format("grammar: rule '{}' is left-recursive; make it consume text before it calls itself",
                        spec.rules()[to].name));
      if (state[to] == 0) state[to] = 1, path.emplace_back(to, 0);
    }
  }
  return {};
}

void Grammar::set_classes() {
  std::bitset<257> cuts;
  for (const RuleTable& rule : rules_) {
    if (!rule.used) continue;
    for (size_t byte = 1; byte < 256; ++byte)
      cuts[byte] = cuts[byte] || rule.dfa.class_of[byte] != rule.dfa.class_of[byte - 1];
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte == 0 || cuts[byte]) {
      samples_.push_back(static_cast<uint8_t>(byte));
      single_.push_back(1);
    } else {
      single_.back() = 0;
    }
    class_of_[byte] = static_cast<uint8_t>(samples_.size() - 1);
  }
  classes_ = static_cast<int32_t>(samples_.size());
}

void Grammar::number_states(RuleId root) {
  int32_t base = 0;
  for (RuleTable& rule : rules_) {
    if (!rule.used) {
      Dfa none;
      rule.dfa = std::move(none);  // releases its share of the budget
      rule.ranges = {};
      continue;
    }
    rule.base = base;
    base += rule.dfa.size();
  }
  first_call_.push_back(0);
  for (size_t r = 0; r < rules_.size(); ++r) {
    RuleTable& rule = rules_[r];
    if (!rule.used) continue;
    rule.fingerprint = content(rule.dfa);
    for (int32_t s = 0; s < rule.dfa.size(); ++s) {
      const auto at = static_cast<size_t>(s);
      const auto row = std::span(rule.dfa.next)
                           .subspan(at * static_cast<size_t>(rule.dfa.classes), static_cast<size_t>(rule.dfa.classes));
      const bool moves = std::ranges::any_of(row, [](int32_t to) { return to >= 0; });
      const bool leaves = moves || !rule.dfa.calls[at].empty();
      flags_.push_back(static_cast<uint8_t>(
          (rule.dfa.accepting[at] ? kAccepting : 0) | (rule.dfa.ticks[at] ? kTicks : 0) |
          (rule.dfa.accepting[at] && !leaves ? kEnds : 0) | (rule.counted ? kCounted : 0) | (moves ? kMoves : 0)));
      rule_of_.push_back(static_cast<uint32_t>(r));
      for (const Dfa::Call& call : rule.dfa.calls[at]) {
        const RuleTable& callee = rules_[static_cast<size_t>(call.rule)];
        const bool nullable = callee.nullable && call.need == 0;
        calls_.push_back({callee.base, call.to + rule.base, call.need, call.room, nullable, callee.counted});
      }
      first_call_.push_back(static_cast<int32_t>(calls_.size()));
    }
    rule.dfa.calls = {};  // now in calls_ and flags_
    rule.dfa.ticks = {};
    rule.dfa.share.detach();
    bytes_ += rule.dfa.next.capacity() * sizeof(int32_t) + rule.dfa.accepting.capacity() + rule.fingerprint.capacity() +
              rule.ranges.capacity() * sizeof(TickRange);
  }
  bytes_ += flags_.capacity() + rule_of_.capacity() * 4 + first_call_.capacity() * 4 +
            calls_.capacity() * sizeof(Call) + rules_.capacity() * sizeof(RuleTable);
  start_ = rules_[static_cast<size_t>(root)].base;
}

}  // namespace millrace
