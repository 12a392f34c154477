#include "text/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>

namespace millrace {
namespace {

// For each state, whether the end can be reached when only rules with `productive` set return.
std::vector<uint8_t> live_states(const Dfa& dfa, const std::vector<uint8_t>& productive) {
  const auto n = static_cast<size_t>(dfa.size());
  std::vector<std::vector<int32_t>> before(n);
  for (size_t s = 0; s < n; ++s) {
    for (int32_t c = 0; c < dfa.classes; ++c) {
      const int32_t to = dfa.next[s * static_cast<size_t>(dfa.classes) + static_cast<size_t>(c)];
      if (to >= 0 && (before[static_cast<size_t>(to)].empty() || before[static_cast<size_t>(to)].back() != static_cast<int32_t>(s)))
        before[static_cast<size_t>(to)].push_back(static_cast<int32_t>(s));
    }
    for (const Dfa::Call& call : dfa.calls[s])
      if (productive[static_cast<size_t>(call.rule)]) before[static_cast<size_t>(call.to)].push_back(static_cast<int32_t>(s));
  }
  std::vector<uint8_t> live(n, 0);
  std::vector<int32_t> stack;
  for (size_t s = 0; s < n; ++s)
    if (dfa.accepting[s]) live[s] = 1, stack.push_back(static_cast<int32_t>(s));
  while (!stack.empty()) {
    const auto s = static_cast<size_t>(stack.back());
    stack.pop_back();
    for (int32_t p : before[s])
      if (!live[static_cast<size_t>(p)]) live[static_cast<size_t>(p)] = 1, stack.push_back(p);
  }
  return live;
}

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
  if (static_cast<int64_t>(spec.rules().size()) > limits.rules) return Error::unsupported(fmt::format("grammar: more than {} rules", limits.rules));
  for (const GrammarSpec::Rule& rule : spec.rules()) {
    RuleTable table;
    MILLRACE_TRY(table.dfa, make_dfa(spec, rule.body, limits, rule.name));
    total += table.dfa.size();
    if (total > limits.total_states) return Error::unsupported(fmt::format("grammar: too large, its rules have more than {} states; simplify it", limits.total_states));
    grammar.rules_.push_back(std::move(table));
  }
  MILLRACE_TRY_VOID(grammar.keep_productive(spec));
  grammar.find_used(spec.root);
  MILLRACE_TRY_VOID(grammar.check_left_recursion(spec));
  grammar.set_classes();
  grammar.number_states(spec.root);
  return grammar;
}

Result<void> Grammar::keep_productive(const GrammarSpec& spec) {
  std::vector<uint8_t> productive(rules_.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t r = 0; r < rules_.size(); ++r) {
      if (productive[r] || !live_states(rules_[r].dfa, productive)[0]) continue;
      productive[r] = 1;
      changed = true;
    }
  }
  if (!productive[static_cast<size_t>(spec.root)]) return Error::user("grammar: no text satisfies it");
  for (size_t r = 0; r < rules_.size(); ++r) {
    Dfa& dfa = rules_[r].dfa;
    const std::vector<uint8_t> live = live_states(dfa, productive);
    for (int32_t& to : dfa.next)
      if (to >= 0 && !live[static_cast<size_t>(to)]) to = -1;
    for (auto& calls : dfa.calls)
      std::erase_if(calls, [&](const Dfa::Call& c) { return !productive[static_cast<size_t>(c.rule)] || !live[static_cast<size_t>(c.to)]; });
    rules_[r].nullable = dfa.accepting[0];
    rules_[r].counted = std::ranges::any_of(dfa.ticks, [](uint8_t t) { return t != 0; });
  }
  // A rule is nullable too when calls alone lead to its end.
  for (bool changed = true; changed;) {
    changed = false;
    for (RuleTable& rule : rules_) {
      if (rule.nullable) continue;
      std::vector<int32_t> stack{0};
      std::vector<uint8_t> seen(static_cast<size_t>(rule.dfa.size()), 0);
      while (!stack.empty() && !rule.nullable) {
        const auto s = static_cast<size_t>(stack.back());
        stack.pop_back();
        rule.nullable = rule.dfa.accepting[s];
        for (const Dfa::Call& call : rule.dfa.calls[s])
          if (rules_[static_cast<size_t>(call.rule)].nullable && !seen[static_cast<size_t>(call.to)]) seen[static_cast<size_t>(call.to)] = 1, stack.push_back(call.to);
      }
      changed |= rule.nullable;
    }
  }
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
        if (!rules_[static_cast<size_t>(call.rule)].used) rules_[static_cast<size_t>(call.rule)].used = true, stack.push_back(call.rule);
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
        if (rules_[static_cast<size_t>(call.rule)].nullable && !seen[static_cast<size_t>(call.to)]) seen[static_cast<size_t>(call.to)] = 1, stack.push_back(call.to);
      }
    }
  }
  std::vector<uint8_t> state(n, 0);  // 1: on the way, 2: done
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
      if (state[to] == 1) return Error::user(fmt::format("grammar: rule '{}' calls itself before it writes anything; put what comes first in front", spec.rules()[to].name));
      if (state[to] == 0) state[to] = 1, path.emplace_back(to, 0);
    }
  }
  return {};
}

void Grammar::set_classes() {
  std::bitset<257> cuts;
  for (const RuleTable& rule : rules_) {
    if (!rule.used) continue;
    for (size_t byte = 1; byte < 256; ++byte) cuts[byte] = cuts[byte] || rule.dfa.class_of[byte] != rule.dfa.class_of[byte - 1];
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
      rule.dfa = {};
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
      const auto row = std::span(rule.dfa.next).subspan(at * static_cast<size_t>(rule.dfa.classes), static_cast<size_t>(rule.dfa.classes));
      const bool moves = std::ranges::any_of(row, [](int32_t to) { return to >= 0; });
      const bool leaves = moves || !rule.dfa.calls[at].empty();
      flags_.push_back(static_cast<uint8_t>((rule.dfa.accepting[at] ? kAccepting : 0) | (rule.dfa.ticks[at] ? kTicks : 0) |
                                            (rule.dfa.accepting[at] && !leaves ? kEnds : 0) | (rule.counted ? kCounted : 0) | (moves ? kMoves : 0)));
      rule_of_.push_back(static_cast<uint32_t>(r));
      for (const Dfa::Call& call : rule.dfa.calls[at]) {
        const RuleTable& callee = rules_[static_cast<size_t>(call.rule)];
        calls_.push_back({callee.base, call.to + rule.base, call.need, call.room, callee.nullable, callee.counted});
      }
      first_call_.push_back(static_cast<int32_t>(calls_.size()));
    }
    bytes_ += rule.dfa.next.size() * sizeof(int32_t) + rule.fingerprint.size();
  }
  bytes_ += flags_.size() * 10 + calls_.size() * sizeof(Call);
  start_ = rules_[static_cast<size_t>(root)].base;
}

}  // namespace millrace
