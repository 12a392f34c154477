// A generator of tests: answers at once, from a function of the prompt, and records what it was asked.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "program/run.h"

namespace millrace::testing {

class ScriptedGenerator final : public Generator {
 public:
  using Answer = std::function<Result<GenerationOutcome>(const GenerationAsk&)>;
  explicit ScriptedGenerator(Answer answer) : answer_(std::move(answer)) {}

  void begin(const GenerationAsk& ask, Done done) override {
    asks.push_back(ask);
    open_.emplace_back(answer_(ask), std::move(done));
    most_open = std::max(most_open, open_.size());
  }
  void cancel_all() override { open_.clear(); }

  // Ends the open generations: the newest first if `newest_first`.
  void finish_all(bool newest_first = false) {
    while (!open_.empty()) {
      auto one = std::move(newest_first ? open_.back() : open_.front());
      newest_first ? open_.pop_back() : open_.pop_front();
      one.second(std::move(one.first));
    }
  }
  size_t open() const { return open_.size(); }

  std::vector<GenerationAsk> asks;
  size_t most_open = 0;

 private:
  Answer answer_;
  std::deque<std::pair<Result<GenerationOutcome>, Done>> open_;
};

inline GenerationOutcome outcome(std::string text, std::vector<float> logprobs = {}) {
  GenerationOutcome out;
  out.text = std::move(text);
  out.logprobs = std::move(logprobs);
  out.prompt_tokens = 10;
  out.cached_tokens = 4;
  out.generated_tokens = 3;
  out.finish = "stop";
  return out;
}

// Runs a program to its end. An empty optional cannot happen: a run that neither ends nor asks is an error.
inline Result<ProgramResult> run_scripted(Program program, ScriptedGenerator& generator,
                                          const ProgramVariables& given = {}, int64_t at_once = 16,
                                          bool newest_first = false) {
  Result<ProgramResult> result = Error::internal("the run has not ended");
  auto run = ProgramRun::start(std::move(program), given, generator, {.at_once = at_once, .limits = {}, .on_step = {}},
                               [&](Result<ProgramResult> out) { result = std::move(out); });
  if (!run.ok()) return run.error();
  generator.finish_all(newest_first);
  return result;
}

}  // namespace millrace::testing
