#include "program/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace millrace {
namespace {

// A fork's branches have the seeds s, s + w, s + 2 w ... of its parent's s, with this much larger w at each depth, so
// that no two branches of a program have the same.
constexpr uint64_t kSeedsOfFork = 1024;

// An answer without tokens is the least likely one.
double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return values.empty() ? -std::numeric_limits<double>::infinity() : sum / static_cast<double>(values.size());
}

size_t common_bytes(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

struct ProgramRun::Fork {
  std::vector<std::shared_ptr<Branch>> branches;
  int64_t open = 0;
};

struct ProgramRun::Branch {
  std::string path;
  std::vector<ProgramMessage> messages;
  std::string text;
  size_t begun = 0;  // bytes of `text` at the fork
  size_t said = 0;   // messages at the fork
  ProgramVariables variables;
  std::map<std::string, double, std::less<>> confidences;  // of generations with `score`
  std::map<std::string, std::shared_ptr<Fork>, std::less<>> forks;
  std::vector<std::pair<const ProgramSteps*, size_t>> at;  // what is left to run, the innermost steps last
  std::weak_ptr<Branch> parent;
  std::weak_ptr<Fork> of;  // the parent owns the fork, and the fork its branches
  std::shared_ptr<Fork> awaited;
  uint64_t seed = 0, seed_step = 1;

  size_t bytes() const {
    size_t sum = text.size();
    for (const ProgramMessage& message : messages) sum += message.content.size();
    for (const auto& [name, value] : variables) sum += value.size();
    return sum;
  }
  // The text that the branch has written since it began.
  std::string written() const { return messages.size() == said ? text.substr(begun) : text; }
};

struct ProgramRun::Waiting {
  GenerationAsk ask;
  std::string path;
  Generator::Done done;
};

struct ProgramRun::Choosing {
  const SelectStep* step = nullptr;
  StepReport report;
  std::vector<double> scores;
  size_t open = 0;
};

ProgramRun::ProgramRun(Program program, Generator& generator, Options options, Finished finished)
    : program_(std::move(program)),
      generator_(generator),
      options_(std::move(options)),
      finished_(std::move(finished)) {}

Result<std::shared_ptr<ProgramRun>> ProgramRun::start(Program program, const ProgramVariables& given,
                                                      Generator& generator, Options options, Finished finished) {
  for (const auto& [name, value] : given) {
    if (!program.variables.contains(name))
      return Error::user(fmt::format("variable {}: the program has no such variable", name));
    program.variables[name] = value;
  }
  MILLRACE_TRY_VOID(check_program(program, options.limits));
  auto run = std::shared_ptr<ProgramRun>(
      new ProgramRun(std::move(program), generator, std::move(options), std::move(finished)));
  const auto root = run->root_ = std::make_shared<Branch>();
  root->variables.insert(run->program_.variables.begin(), run->program_.variables.end());
  root->seed = run->program_.seed;
  for (const ProgramMessage& message : run->program_.messages) {
    MILLRACE_TRY(std::string content, with_values(message.content, root->variables, run->options_.limits.text_bytes));
    root->messages.push_back({message.role, std::move(content)});
  }
  root->at.emplace_back(&run->program_.steps, 0);
  run->open_branches_ = run->result_.usage.branches = 1;
  run->advance(root);
  return run;
}

void ProgramRun::cancel() {
  if (std::exchange(over_, true)) return;
  waiting_.clear();
  finished_ = nullptr;
  generator_.cancel_all();
}

void ProgramRun::advance(const std::shared_ptr<Branch>& branch) {
  while (!over_) {
    while (!branch->at.empty() && branch->at.back().second == branch->at.back().first->size()) branch->at.pop_back();
    if (branch->at.empty()) return end_branch(branch);
    auto& [steps, index] = branch->at.back();
    const ProgramStep& step = (*steps)[index++];
    const Result<bool> goes_on = run(step, branch);
    if (!goes_on.ok()) return fail(*branch, goes_on.error());
    if (!*goes_on) return;
  }
}

Result<bool> ProgramRun::run(const ProgramStep& step, const std::shared_ptr<Branch>& branch) {
  return std::visit([&](const auto& one) { return run(one, branch); }, step.what);
}

Result<bool> ProgramRun::run(const TextStep& step, const std::shared_ptr<Branch>& branch) {
  MILLRACE_TRY(const std::string text, written_by(step.text, branch->variables));
  MILLRACE_TRY_VOID(append(*branch, text));
  return true;
}

Result<bool> ProgramRun::run(const MessageStep& step, const std::shared_ptr<Branch>& branch) {
  if (!branch->text.empty()) branch->messages.push_back({"assistant", std::exchange(branch->text, {})});
  MILLRACE_TRY(std::string content, written_by(step.message.content, branch->variables));
  branch->messages.push_back({step.message.role, std::move(content)});
  MILLRACE_TRY_VOID(append(*branch, ""));
  return true;
}

Result<bool> ProgramRun::run(const SetStep& step, const std::shared_ptr<Branch>& branch) {
  MILLRACE_TRY(std::string text, written_by(step.text, branch->variables));
  MILLRACE_TRY_VOID(set(*branch, step.name, std::move(text)));
  branch->confidences.erase(step.name);
  return true;
}

GenerationAsk ProgramRun::ask_of(const Branch& branch, const GenSettings& settings) const {
  GenerationAsk out{.messages = branch.messages, .text = branch.text, .settings = settings};
  if (!out.settings.seed) out.settings.seed = branch.seed;
  return out;
}

StepReport ProgramRun::report_of(const char* kind, const std::string& name, const std::string& model,
                                 const Branch& branch) {
  StepReport out;
  out.kind = kind;
  out.name = name;
  out.model = model;
  out.branch = branch.path;
  out.seed = branch.seed;
  out.finish = "stop";
  return out;
}

Result<bool> ProgramRun::run(const GenStep& step, const std::shared_ptr<Branch>& branch) {
  GenerationAsk wanted = ask_of(*branch, step.settings);
  wanted.score = step.score;
  const uint64_t seed = *wanted.settings.seed;
  MILLRACE_TRY_VOID(ask(*branch, std::move(wanted), [this, &step, branch, seed](Result<GenerationOutcome> outcome) {
    if (!outcome.ok()) {
      return fail(*branch, Error{outcome.error().kind, fmt::format("gen {}: {}", step.name, outcome.error().message)});
    }
    StepReport done = report_of("gen", step.name, step.settings.model, *branch);
    done.text = outcome->text;
    done.seed = seed;
    done.finish = outcome->finish;
    add(*outcome, done);
    branch->confidences.erase(step.name);
    if (step.score) done.confidence = branch->confidences[step.name] = std::exp(mean(outcome->logprobs));
    report(std::move(done));
    Result<void> kept = set(*branch, step.name, outcome->text);
    if (kept.ok() && step.append) kept = append(*branch, outcome->text);
    if (!kept.ok()) return fail(*branch, kept.error());
    advance(branch);
  }));
  return false;
}

Result<bool> ProgramRun::run(const SelectStep& step, const std::shared_ptr<Branch>& branch) {
  const auto choosing = std::make_shared<Choosing>();
  choosing->step = &step;
  choosing->scores.resize(step.choices.size());
  choosing->open = step.choices.size();
  choosing->report = report_of("select", step.name, step.model, *branch);
  for (size_t i = 0; i < step.choices.size(); ++i) {
    GenSettings settings;
    settings.temperature = 0;
    settings.model = step.model;
    settings.max_tokens = std::ssize(step.choices[i]) + 1;
    settings.constraint.kind = Constraint::Kind::choice;
    settings.constraint.choices = {step.choices[i]};
    GenerationAsk wanted = ask_of(*branch, settings);
    wanted.score = true;
    MILLRACE_TRY_VOID(ask(*branch, std::move(wanted), [this, branch, choosing, i](Result<GenerationOutcome> outcome) {
      if (!outcome.ok()) {
        return fail(*branch, Error{outcome.error().kind,
                                   fmt::format("select {}: {}", choosing->step->name, outcome.error().message)});
      }
      choosing->scores[i] = mean(outcome->logprobs);
      add(*outcome, choosing->report);
      if (--choosing->open == 0) end_select(branch, choosing);
    }));
  }
  return false;
}

void ProgramRun::end_select(const std::shared_ptr<Branch>& branch, const std::shared_ptr<Choosing>& choosing) {
  const auto best = std::ranges::max_element(choosing->scores) - choosing->scores.begin();
  const std::string& chosen = choosing->step->choices[static_cast<size_t>(best)];
  choosing->report.text = chosen;
  choosing->report.scores = choosing->scores;
  report(std::move(choosing->report));
  Result<void> kept = set(*branch, choosing->step->name, chosen);
  if (kept.ok()) kept = append(*branch, chosen);
  if (!kept.ok()) return fail(*branch, kept.error());
  advance(branch);
}

Result<bool> ProgramRun::run(const ForkStep& step, const std::shared_ptr<Branch>& branch) {
  std::vector<std::string> lines;
  size_t count = step.count > 0 ? static_cast<size_t>(step.count) : step.branches.size();
  if (!step.each.empty()) {
    lines = lines_of(branch->variables.find(step.each)->second, step.numbered, static_cast<size_t>(step.most));
    count = lines.size();
  }
  const auto fork = branch->forks[step.name] = std::make_shared<Fork>();
  fork->open = static_cast<int64_t>(count);
  open_branches_ += fork->open;
  result_.usage.branches += fork->open;
  for (size_t i = 0; i < count; ++i) {
    MILLRACE_TRY_VOID(copies(branch->bytes()));
    const auto child = std::make_shared<Branch>();
    child->path = fmt::format("{}{}{}.{}", branch->path, branch->path.empty() ? "" : "/", step.name, i + 1);
    child->messages = branch->messages;
    child->text = branch->text;
    child->begun = child->text.size();
    child->said = child->messages.size();
    child->variables = branch->variables;
    child->variables.insert_or_assign("index", std::to_string(i + 1));
    child->variables.insert_or_assign("count", std::to_string(count));
    if (!step.each.empty()) child->variables.insert_or_assign(step.as, lines[i]);
    child->confidences = branch->confidences;
    child->at.emplace_back(&step.branches[step.branches.size() == 1 ? 0 : i], 0);
    child->parent = branch;
    child->of = fork;
    child->seed = branch->seed + i * branch->seed_step;
    child->seed_step = branch->seed_step * kSeedsOfFork;
    fork->branches.push_back(child);
  }
  for (const auto& child : std::vector(fork->branches)) advance(child);
  return true;
}

// Returns true if the fork has open branches. The branch then repeats its step when they have ended.
bool ProgramRun::waits_for(const std::shared_ptr<Fork>& fork, Branch& branch) {
  if (fork->open == 0) return false;
  branch.awaited = fork;
  --branch.at.back().second;
  return true;
}

Result<bool> ProgramRun::run(const JoinStep& step, const std::shared_ptr<Branch>& branch) {
  const auto fork = branch->forks.find(step.fork)->second;
  if (waits_for(fork, *branch)) return false;
  MILLRACE_TRY(const std::string separator, written_by(step.separator, {}));
  std::string joined;
  for (size_t i = 0; i < fork->branches.size(); ++i) {
    const Branch& child = *fork->branches[i];
    if (i > 0) joined += separator;
    if (step.text.empty()) {
      joined += child.written();
    } else {
      MILLRACE_TRY(const std::string text, written_by(step.text, child.variables));
      joined += text;
    }
    if (std::ssize(joined) > options_.limits.text_bytes)
      return Error::user(fmt::format("the text has more than {} bytes", options_.limits.text_bytes));
  }
  MILLRACE_TRY_VOID(set(*branch, step.fork, joined));
  if (step.append) MILLRACE_TRY_VOID(append(*branch, joined));
  return true;
}

Result<bool> ProgramRun::run(const VoteStep& step, const std::shared_ptr<Branch>& branch) {
  const auto fork = branch->forks.find(step.fork)->second;
  if (waits_for(fork, *branch)) return false;
  struct Votes {
    std::string part, whole;  // of the first branch with this part
    int64_t count = 0;
  };
  std::vector<Votes> votes;  // in the order of these branches
  for (const auto& child : fork->branches) {
    const auto found = child->variables.find(step.of);
    if (found == child->variables.end()) return Error::user(fmt::format("'{}' is not set in every branch", step.of));
    const std::string& whole = found->second;
    std::string part = voted_part(whole, step.after);
    auto same = std::ranges::find(votes, part, &Votes::part);
    if (same == votes.end()) same = votes.insert(votes.end(), {std::move(part), whole, 0});
    if (!same->part.empty()) ++same->count;  // a branch without an answer has no vote
  }
  const auto most = std::ranges::max_element(votes, {}, &Votes::count);
  const std::string none;
  MILLRACE_TRY_VOID(set(*branch, step.name, most == votes.end() ? none : step.whole ? most->whole : most->part));
  return true;
}

Result<bool> ProgramRun::run(const BestStep& step, const std::shared_ptr<Branch>& branch) {
  const auto fork = branch->forks.find(step.fork)->second;
  if (waits_for(fork, *branch)) return false;
  const Branch* best = nullptr;
  for (const auto& child : fork->branches)
    if (!child->confidences.contains(step.of) || !child->variables.contains(step.of))
      return Error::user(fmt::format("'{}' has no score in every branch", step.of));
  const auto confidence = [&](const Branch& child) { return child.confidences.find(step.of)->second; };
  for (const auto& child : fork->branches)
    if (!best || confidence(*child) > confidence(*best)) best = child.get();
  MILLRACE_TRY_VOID(set(*branch, step.name, best ? best->variables.find(step.of)->second : ""));
  return true;
}

Result<bool> ProgramRun::run(const IfStep& step, const std::shared_ptr<Branch>& branch) {
  if (step.is) {
    if (voted_part(branch->variables.find(step.of)->second, "") == *step.is) branch->at.emplace_back(&step.steps, 0);
    return true;
  }
  const auto confidence = branch->confidences.find(step.of);
  if (confidence != branch->confidences.end() && confidence->second < step.below)
    branch->at.emplace_back(&step.steps, 0);
  return true;
}

Result<void> ProgramRun::ask(const Branch& branch, GenerationAsk ask, Generator::Done done) {
  MILLRACE_TRY_VOID(copies(branch.bytes()));
  waiting_.push_back({std::move(ask), branch.path, std::move(done)});
  begin_waiting();
  return {};
}

void ProgramRun::begin_waiting() {
  while (!over_ && open_asks_ < options_.at_once && !waiting_.empty()) {
    const auto nearest =
        std::ranges::max_element(waiting_, {}, [&](const Waiting& one) { return common_bytes(one.path, last_begun_); });
    Waiting next = std::move(*nearest);
    waiting_.erase(nearest);
    last_begun_ = std::move(next.path);
    ++open_asks_;
    ProgramUsage& usage = result_.usage;
    usage.at_once = std::max(usage.at_once, open_asks_);
    ++usage.requests;
    generator_.begin(next.ask, [self = shared_from_this(), done = std::move(next.done)](Result<GenerationOutcome> out) {
      if (self->over_) return;
      --self->open_asks_;
      done(std::move(out));
      self->begin_waiting();
    });
  }
}

void ProgramRun::add(const GenerationOutcome& outcome, StepReport& report) {
  ProgramUsage& usage = result_.usage;
  usage.prompt_tokens += outcome.prompt_tokens;
  usage.cached_tokens += outcome.cached_tokens;
  usage.generated_tokens += outcome.generated_tokens;
  report.prompt_tokens += outcome.prompt_tokens;
  report.cached_tokens += outcome.cached_tokens;
  report.generated_tokens += outcome.generated_tokens;
}

Result<std::string> ProgramRun::written_by(const std::string& text, const ProgramVariables& variables) {
  MILLRACE_TRY(std::string out, with_values(text, variables, options_.limits.text_bytes));
  MILLRACE_TRY_VOID(copies(out.size()));
  return out;
}

Result<void> ProgramRun::copies(size_t bytes) {
  copied_bytes_ += static_cast<int64_t>(bytes);
  if (copied_bytes_ <= options_.limits.copied_bytes) return {};
  return Error::user(
      fmt::format("the program's branches and prompts have more than {} bytes together", options_.limits.copied_bytes));
}

void ProgramRun::report(StepReport report) {
  if (options_.on_step) options_.on_step(report);
  result_.steps.push_back(std::move(report));
}

Result<void> ProgramRun::append(Branch& branch, const std::string& text) const {
  branch.text += text;
  size_t bytes = branch.text.size();
  for (const ProgramMessage& message : branch.messages) bytes += message.content.size();
  if (static_cast<int64_t>(bytes) <= options_.limits.text_bytes) return {};
  return Error::user(fmt::format("the text has more than {} bytes", options_.limits.text_bytes));
}

Result<void> ProgramRun::set(Branch& branch, const std::string& name, std::string value) const {
  if (static_cast<int64_t>(value.size()) > options_.limits.text_bytes)
    return Error::user(fmt::format("variable {}: has more than {} bytes", name, options_.limits.text_bytes));
  branch.variables.insert_or_assign(name, std::move(value));
  return {};
}

void ProgramRun::end_branch(const std::shared_ptr<Branch>& branch) {
  branch->forks.clear();
  const auto fork = branch->of.lock();
  const auto parent = branch->parent.lock();
  if (fork && --fork->open == 0 && parent && parent->awaited == fork) {
    parent->awaited = nullptr;
    advance(parent);
  }
  if (--open_branches_ > 0 || over_) return;
  result_.text = root_->text;
  if (!program_.output.empty()) {
    auto text = written_by(program_.output, root_->variables);
    if (!text.ok()) return fail(*root_, text.error());
    result_.text = std::move(*text);
  }
  result_.variables = root_->variables;
  finish(std::move(result_));
}

void ProgramRun::fail(const Branch& branch, const Error& error) {
  finish(Error{error.kind, branch.path.empty() ? error.message : branch.path + ": " + error.message});
}

void ProgramRun::finish(Result<ProgramResult> result) {
  if (std::exchange(over_, true)) return;
  waiting_.clear();
  if (!result.ok()) generator_.cancel_all();
  const Finished finished = std::exchange(finished_, nullptr);
  if (finished) finished(std::move(result));
}

}  // namespace millrace
