// The Aho-Corasick automaton of the triggers, as a rule: a state is the longest suffix of the text that is a prefix of
// a trigger.
#include <fmt/format.h>

#include <deque>

#include "text/grammar/structure.h"

namespace millrace {
namespace {

constexpr size_t kMaxTriggerBytes = 16384;

struct Tree {
  std::vector<std::array<int32_t, 256>> next;
  std::vector<int32_t> trigger;  // [state]: the trigger completed here, or -1

  int32_t add() {
    next.emplace_back().fill(-1);
    trigger.push_back(-1);
    return static_cast<int32_t>(next.size()) - 1;
  }
};

// Fills missing edges from the longest proper suffix.
void add_failures(Tree& tree) {
  std::vector<int32_t> fail(tree.next.size(), 0);
  std::deque<int32_t> queue;
  for (int32_t& to : tree.next[0]) {
    if (to < 0)
      to = 0;
    else
      queue.push_back(to);
  }
  for (; !queue.empty(); queue.pop_front()) {
    const auto at = static_cast<size_t>(queue.front());
    for (size_t byte = 0; byte < 256; ++byte) {
      int32_t& to = tree.next[at][byte];
      const int32_t other = tree.next[static_cast<size_t>(fail[at])][byte];
      if (to < 0) {
        to = other;
      } else {
        fail[static_cast<size_t>(to)] = other;
        queue.push_back(to);
      }
    }
  }
}

}  // namespace

Result<ExprId> triggered_text(GrammarSpec& spec, const std::vector<Trigger>& triggers, bool must, bool again,
                              CompileBudget* budget) {
  Tree tree;
  BudgetShare share(budget);
  tree.add();
  size_t bytes = 0;
  for (size_t i = 0; i < triggers.size(); ++i) {
    const std::string& text = triggers[i].text;
    if (text.empty()) return Error::user("structure: a trigger is empty");
    MILLRACE_TRY_VOID(share.resize(static_cast<int64_t>((tree.next.size() + text.size()) * 2 * sizeof(tree.next[0]))));
    MILLRACE_TRY_VOID(share.check(static_cast<int64_t>(triggers.size() * text.size())));
    for (size_t j = 0; j < triggers.size(); ++j)
      if (i != j && triggers[j].text.find(text) != std::string::npos)
        return Error::user(fmt::format("structure: the trigger '{}' is a substring of '{}'", text, triggers[j].text));
    if ((bytes += text.size()) > kMaxTriggerBytes)
      return Error::unsupported(fmt::format("structure: the triggers are longer than {} bytes", kMaxTriggerBytes));
    int32_t at = 0;
    for (char c : text) {
      int32_t to = tree.next[static_cast<size_t>(at)][static_cast<uint8_t>(c)];
      if (to < 0) {
        to = tree.add();
        tree.next[static_cast<size_t>(at)][static_cast<uint8_t>(c)] = to;
      }
      at = to;
    }
    tree.trigger[static_cast<size_t>(at)] = static_cast<int32_t>(i);
  }
  add_failures(tree);

  Dfa dfa;
  dfa.share = BudgetShare(budget);
  std::array<bool, 256> used{};
  for (const Trigger& trigger : triggers)
    for (char c : trigger.text) used[static_cast<uint8_t>(c)] = true;
  dfa.classes = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (byte == 0 || used[byte] || used[byte - 1]) ++dfa.classes;
    dfa.class_of[byte] = static_cast<uint8_t>(dfa.classes - 1);
  }
  const size_t states = tree.next.size(), classes = static_cast<size_t>(dfa.classes);
  const auto end = static_cast<int32_t>(states);  // after a trigger, if no free text follows
  dfa.next.assign((states + 1) * classes, -1);
  dfa.accepting.assign(states + 1, must ? 0 : 1);
  dfa.accepting[states] = 1;
  dfa.ticks.assign(states + 1, 0);
  dfa.calls.resize(states + 1);
  // Required and repeatable: after the first trigger, continue in a separate rule where triggers are optional.
  RuleId rest = -1;
  if (must && again) {
    MILLRACE_TRY(const ExprId body, triggered_text(spec, triggers, false, true, budget));
    rest = spec.add_rule("the text after a trigger");
    spec.set_body(rest, body);
  }
  for (size_t s = 0; s < states; ++s) {
    const int32_t came = tree.trigger[s];
    if (came < 0) {
      for (size_t byte = 0; byte < 256; ++byte) dfa.next[s * classes + dfa.class_of[byte]] = tree.next[s][byte];
      continue;
    }
    dfa.accepting[s] = 0;
    const RuleId after = triggers[static_cast<size_t>(came)].after;
    std::vector<ExprId> parts;
    if (after >= 0) parts.push_back(spec.call(after));
    if (rest >= 0) parts.push_back(spec.call(rest));
    RuleId called = after;
    if (parts.size() > 1 || (after < 0 && rest >= 0)) {
      called = spec.add_rule("what follows a trigger");
      spec.set_body(called, spec.sequence(parts));
    }
    const int32_t to = again && !must ? 0 : end;
    if (called < 0 && to == end)
      dfa.accepting[s] = 1;
    else if (called < 0)
      for (size_t c = 0; c < classes; ++c) dfa.next[s * classes + c] = dfa.next[c];
    else
      dfa.calls[s].push_back({called, 0, kNoLimit, to});
    if (called < 0 && to == 0) dfa.accepting[s] = dfa.accepting[0];
  }
  MILLRACE_TRY_VOID(dfa.share.resize(dfa.bytes()));
  return spec.dfa(std::make_shared<const Dfa>(std::move(dfa)));
}

}  // namespace millrace
