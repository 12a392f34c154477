// ProgramRun: executes a program. It advances a branch until the branch waits for a generation or for a fork, so any
// number of branches proceed on one thread.
//
//   steps --> asks that wait --(at most `at_once` open)--> Generator --> done() --> the branch goes on
//
// The next ask is the one that is nearest, in the tree of branches, to the last one begun: both share the longest text,
// which is then still in the prefix cache. This order, the number of open asks and the time that each takes
// change no text: a generation depends on its ask alone, and a branch's seed on its place in the program.
//
// Not thread-safe: all functions and the generator's calls belong to one thread. Objects are owned by shared_ptr.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "program/generator.h"
#include "program/program.h"
#include "program/variables.h"

namespace millrace {

// One finished gen or select.
struct StepReport {
  std::string kind;    // "gen" or "select"
  std::string name;    // variable
  std::string branch;  // "details.3", "details.3/checks.1"; "": the program itself
  std::string text;
  std::string model;  // "": the program's
  uint64_t seed = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string finish;
  double confidence = -1;      // exponential of the mean log-probability of the tokens; -1: not computed
  std::vector<double> scores;  // mean log-probability of each choice of a select
};

struct ProgramUsage {
  int64_t requests = 0, branches = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t at_once = 0;  // most generations that were open at one time
};

struct ProgramResult {
  std::string text;
  ProgramVariables variables;
  ProgramUsage usage;
  std::vector<StepReport> steps;  // in the order in which they ended
};

class ProgramRun : public std::enable_shared_from_this<ProgramRun> {
 public:
  struct Options {
    int64_t at_once = 16;  // open generations
    ProgramLimits limits;
    std::function<void(const StepReport&)> on_step;  // after each gen and select; may be null
  };
  using Finished = std::function<void(Result<ProgramResult>)>;

  // Checks the program and begins it; `given` replaces values of its variables. `generator` outlives the run.
  // `finished` is called once, unless cancel() is called before; without generations, before start() returns. Errors:
  // user.
  static Result<std::shared_ptr<ProgramRun>> start(Program program, const ProgramVariables& given, Generator& generator,
                                                   Options options, Finished finished);

  // Ends the run without a result.
  void cancel();

 private:
  struct Branch;
  struct Fork;
  struct Waiting;
  struct Choosing;

  ProgramRun(Program program, Generator& generator, Options options, Finished finished);

  void advance(const std::shared_ptr<Branch>& branch);
  // Runs one step. Returns false if the branch must wait.
  Result<bool> run(const ProgramStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const TextStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const MessageStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const SetStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const GenStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const SelectStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const ForkStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const JoinStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const VoteStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const BestStep& step, const std::shared_ptr<Branch>& branch);
  Result<bool> run(const IfStep& step, const std::shared_ptr<Branch>& branch);
  GenerationAsk ask_of(const Branch& branch, const GenSettings& settings) const;
  static StepReport report_of(const char* kind, const std::string& name, const std::string& model,
                              const Branch& branch);
  static bool waits_for(const std::shared_ptr<Fork>& fork, Branch& branch);
  Result<void> ask(const Branch& branch, GenerationAsk ask, Generator::Done done);
  void begin_waiting();
  void add(const GenerationOutcome& outcome, StepReport& report);
  Result<void> copies(size_t bytes);
  void report(StepReport report);
  void end_select(const std::shared_ptr<Branch>& branch, const std::shared_ptr<Choosing>& choosing);
  Result<std::string> written_by(const std::string& text, const ProgramVariables& variables);
  Result<void> append(Branch& branch, const std::string& text) const;
  Result<void> set(Branch& branch, const std::string& name, std::string value) const;
  void end_branch(const std::shared_ptr<Branch>& branch);
  void fail(const Branch& branch, const Error& error);
  void finish(Result<ProgramResult> result);

  const Program program_;
  Generator& generator_;
  const Options options_;
  Finished finished_;
  ProgramResult result_;
  std::vector<Waiting> waiting_;
  std::string last_begun_;
  std::shared_ptr<Branch> root_;
  int64_t open_asks_ = 0, open_branches_ = 0, copied_bytes_ = 0;
  bool over_ = false;
};

}  // namespace millrace
