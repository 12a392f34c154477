// Checks a program before it runs: its limits, and that names are set before they are read.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "program/program.h"
#include "program/variables.h"

namespace millrace {
namespace {

// The names that a step may read: variables with a value, generations with a score, and forks that have begun.
struct Scope {
  std::set<std::string, std::less<>> variables, scored;
  std::map<std::string, Scope, std::less<>> forks;   // with what every one of its branches has set
  std::set<std::string, std::less<>> joined, begun;  // begun: forks of these steps, and of the ifs among them
};

class ProgramChecker {
 public:
  explicit ProgramChecker(const ProgramLimits& limits) : limits_(limits) {}

  // `times`: how often the steps run at most.
  Result<void> check(const ProgramSteps& steps, const std::string& where, int64_t deep, int64_t times, Scope& scope) {
    for (size_t i = 0; i < steps.size(); ++i) {
      where_ = fmt::format("{}[{}]", where, i);
      if (++steps_ > limits_.steps) return wrong(fmt::format("the program has more than {} steps", limits_.steps));
      executed_ += times;
      if (executed_ > limits_.executed)
        return wrong(fmt::format("the branches execute more than {} steps together", limits_.executed));
      deep_ = deep;
      times_ = times;
      MILLRACE_TRY_VOID(std::visit([&](const auto& step) { return one(step, scope); }, steps[i].what));
    }
    return {};
  }

  Result<void> reads(std::string_view text, const Scope& scope) const {
    if (static_cast<int64_t>(text.size()) > limits_.text_bytes)
      return wrong(fmt::format("the text has more than {} bytes", limits_.text_bytes));
    const auto names = names_in(text);
    if (!names.ok()) return wrong(names.error().message);
    for (const std::string& name : *names)
      if (!scope.variables.contains(name)) return wrong(fmt::format("{{{}}}: is not set before this step", name));
    return {};
  }
  Error wrong(const std::string& what) const { return Error::user(where_ + ": " + what); }
  void at(std::string where) { where_ = std::move(where); }
  ProgramSize size() const { return size_; }

 private:
  Result<void> sets(const std::string& name, Scope& scope) const {
    if (!is_variable_name(name))
      return wrong(fmt::format("'{}' is not a name; write 1 to 64 letters, digits and '_'", name.substr(0, 80)));
    if (name == "index" || name == "count")
      return wrong(fmt::format("'{}' is the name of a branch's own number; choose another", name));
    if (scope.forks.contains(name)) return wrong(fmt::format("'{}' is the name of a fork; choose another", name));
    scope.variables.insert(name);
    return {};
  }

  // The branches' scope of the fork that a step waits for.
  Result<const Scope*> waits(const std::string& fork, const Scope& scope) const {
    const auto found = scope.forks.find(fork);
    if (found == scope.forks.end()) return wrong(fmt::format("'{}' is not a fork before this step", fork));
    return &found->second;
  }

  Result<void> counts(int64_t requests, int64_t tokens) {
    size_.requests += requests * times_;
    size_.tokens += requests * tokens * times_;
    if (size_.requests > limits_.requests)
      return wrong(fmt::format("the program may send more than {} generations", limits_.requests));
    if (size_.tokens > limits_.tokens)
      return wrong(fmt::format("the program may generate more than {} tokens; lower max_tokens", limits_.tokens));
    return {};
  }

  Result<void> one(const TextStep& step, Scope& scope) { return reads(step.text, scope); }

  Result<void> one(const MessageStep& step, Scope& scope) {
    if (step.message.role != "user" && step.message.role != "system")
      return wrong(fmt::format("role '{}': must be user or system", step.message.role));
    return reads(step.message.content, scope);
  }

  Result<void> one(const SetStep& step, Scope& scope) {
    MILLRACE_TRY_VOID(reads(step.text, scope));
    scope.scored.erase(step.name);
    return sets(step.name, scope);
  }

  Result<void> one(const GenStep& step, Scope& scope) {
    if (step.settings.max_tokens < 1 || step.settings.max_tokens > limits_.tokens)
      return wrong(fmt::format("max_tokens: must be 1 to {}, got {}", limits_.tokens, step.settings.max_tokens));
    MILLRACE_TRY_VOID(sets(step.name, scope));
    if (step.score)
      scope.scored.insert(step.name);
    else
      scope.scored.erase(step.name);
    return counts(1, step.settings.max_tokens);
  }

  Result<void> one(const SelectStep& step, Scope& scope) {
    if (step.choices.empty()) return wrong("choices: needs at least one");
    size_t longest = 0;
    for (const std::string& choice : step.choices) {
      if (choice.empty()) return wrong("choices: a choice is empty");
      longest = std::max(longest, choice.size());
    }
    MILLRACE_TRY_VOID(sets(step.name, scope));
    return counts(std::ssize(step.choices), static_cast<int64_t>(longest) + 1);
  }

  Result<void> one(const ForkStep& step, Scope& scope) {
    const std::string where = where_;
    const int64_t deep = deep_ + 1, times = times_;
    if (deep > limits_.forks_deep)
      return wrong(fmt::format("more than {} forks inside of each other", limits_.forks_deep));
    if (scope.variables.contains(step.name)) return wrong(fmt::format("'{}' is a variable; choose another", step.name));
    Scope branch = scope;
    MILLRACE_TRY_VOID(sets(step.name, scope));
    scope.variables.erase(step.name);
    const bool repeats = step.count > 0 || !step.each.empty();
    if (step.branches.empty() || (repeats && step.branches.size() != 1)) return wrong("fork: needs branches");
    const int64_t copies = !step.each.empty() ? step.most : repeats ? step.count : std::ssize(step.branches);
    if (copies < 1 || copies > limits_.branches)
      return wrong(fmt::format("fork: must have 1 to {} branches, got {}", limits_.branches, copies));
    branches_ += times * copies;
    if (branches_ > limits_.all_branches)
      return wrong(fmt::format("the program has more than {} branches", limits_.all_branches));
    if (!step.each.empty()) {
      if (!scope.variables.contains(step.each))
        return wrong(fmt::format("each: '{}' is not set before this step", step.each));
      MILLRACE_TRY_VOID(sets(step.as, branch));
    }
    branch.variables.insert({"index", "count"});
    branch.forks.clear();  // a branch waits for its own forks only
    Scope common;
    for (size_t i = 0; i < step.branches.size(); ++i) {
      Scope own = branch;
      MILLRACE_TRY_VOID(check(step.branches[i], fmt::format("{}.branches[{}]", where, i), deep,
                              repeats ? times * copies : times, own));
      if (i == 0)
        common = std::move(own);
      else
        keep_common(common, own);
    }
    where_ = where;
    common.forks.clear();
    scope.begun.insert(step.name);
    scope.forks[step.name] = std::move(common);
    return {};
  }

  static void keep_common(Scope& common, const Scope& own) {
    std::erase_if(common.variables, [&](const std::string& name) { return !own.variables.contains(name); });
    std::erase_if(common.scored, [&](const std::string& name) { return !own.scored.contains(name); });
  }

  Result<void> one(const JoinStep& step, Scope& scope) {
    MILLRACE_TRY(const Scope* branches, waits(step.fork, scope));
    MILLRACE_TRY_VOID(reads(step.text, *branches));
    MILLRACE_TRY_VOID(reads(step.separator, {}));
    if (!scope.joined.insert(step.fork).second) return wrong(fmt::format("'{}' has been joined before", step.fork));
    scope.variables.insert(step.fork);
    return {};
  }

  Result<void> one(const VoteStep& step, Scope& scope) {
    MILLRACE_TRY(const Scope* branches, waits(step.fork, scope));
    if (!branches->variables.contains(step.of))
      return wrong(fmt::format("of: '{}' is not set in every branch of '{}'", step.of, step.fork));
    return sets(step.name, scope);
  }

  Result<void> one(const BestStep& step, Scope& scope) {
    MILLRACE_TRY(const Scope* branches, waits(step.fork, scope));
    if (!branches->scored.contains(step.of))
      return wrong(
          fmt::format("of: '{}' is not a gen with \"score\": true in every branch of '{}'", step.of, step.fork));
    return sets(step.name, scope);
  }

  Result<void> one(const IfStep& step, Scope& scope) {
    if (step.is && !scope.variables.contains(step.of))
      return wrong(fmt::format("if: '{}' is not set before this step", step.of));
    if (!step.is && !scope.scored.contains(step.of))
      return wrong(fmt::format("if: '{}' is not a gen with \"score\": true before this step", step.of));
    if (!(step.below >= 0 && step.below <= 1e9)) return wrong("below: must be 0 or more");
    const std::string where = where_;
    Scope own = scope;
    own.forks.clear();  // the steps wait for their own forks only
    own.begun.clear();
    MILLRACE_TRY_VOID(check(step.steps, where + ".steps", deep_, times_, own));
    where_ = where;
    for (const std::string& name : own.begun)  // the steps may not run, and later ones would wait for another fork
      if (scope.forks.contains(name)) return wrong(fmt::format("fork '{}' has been begun before the if", name));
    scope.begun.merge(own.begun);
    std::erase_if(scope.scored, [&](const std::string& name) { return !own.scored.contains(name); });
    return {};
  }

  const ProgramLimits limits_;
  std::string where_;
  int64_t deep_ = 0, times_ = 1, steps_ = 0, executed_ = 0, branches_ = 0;
  ProgramSize size_;
};

}  // namespace

namespace {

bool begins_with_message(const ProgramSteps& steps) {
  if (steps.empty()) return false;
  if (const auto* fork = std::get_if<ForkStep>(&steps.front().what))
    return !fork->branches.empty() && begins_with_message(fork->branches.front());
  return std::holds_alternative<MessageStep>(steps.front().what);
}

// In a program of plain text, no message may follow.
Result<void> check_kind(const ProgramSteps& steps, const std::string& where) {
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    if (std::holds_alternative<MessageStep>(steps[i].what))
      return Error::user(here + ": a message, in a program that begins with text; begin with a message");
    if (const auto* fork = std::get_if<ForkStep>(&steps[i].what))
      for (size_t j = 0; j < fork->branches.size(); ++j)
        MILLRACE_TRY_VOID(check_kind(fork->branches[j], fmt::format("{}.branches[{}]", here, j)));
    if (const auto* condition = std::get_if<IfStep>(&steps[i].what))
      MILLRACE_TRY_VOID(check_kind(condition->steps, here + ".steps"));
  }
  return {};
}

}  // namespace

bool has_messages(const Program& program) { return !program.messages.empty() || begins_with_message(program.steps); }

Result<ProgramSize> check_program(const Program& program, const ProgramLimits& limits) {
  ProgramChecker checker(limits);
  Scope scope;
  checker.at("variables");
  for (const auto& [name, value] : program.variables) {
    if (!is_variable_name(name) || name == "index" || name == "count")
      return checker.wrong(
          fmt::format("'{}' is not a name; write 1 to 64 letters, digits and '_'", name.substr(0, 80)));
    if (static_cast<int64_t>(value.size()) > limits.text_bytes)
      return checker.wrong(fmt::format("{}: has more than {} bytes", name, limits.text_bytes));
    scope.variables.insert(name);
  }
  for (size_t i = 0; i < program.messages.size(); ++i) {
    checker.at(fmt::format("messages[{}]", i));
    MILLRACE_TRY_VOID(checker.reads(program.messages[i].content, scope));
  }
  if (program.steps.empty()) return Error::user("steps: a program needs at least one");
  MILLRACE_TRY_VOID(checker.check(program.steps, "steps", 0, 1, scope));
  if (!has_messages(program)) MILLRACE_TRY_VOID(check_kind(program.steps, "steps"));
  checker.at("output");
  MILLRACE_TRY_VOID(checker.reads(program.output, scope));
  return checker.size();
}

}  // namespace millrace
