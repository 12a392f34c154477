// ProgramBuilder: builds a program in C++, a call for each step.
//
//   ProgramBuilder build;
//   build.user("List {n} colours.").gen("colours", {.max_tokens = 64});
//   build.fork_each("about", "colours", "colour", [](ProgramBuilder& branch) {
//     branch.user("Where is {colour} seen?").gen("place");
//   });
//   build.join("about", "{colour}: {place}");
//   Program program = build.take();
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace millrace {

class ProgramBuilder {
 public:
  using Steps = std::function<void(ProgramBuilder&)>;

  ProgramBuilder& variable(const std::string& name, std::string value) {
    program_.variables.insert_or_assign(name, std::move(value));
    return *this;
  }
  ProgramBuilder& text(std::string text) { return add(TextStep{std::move(text)}); }
  ProgramBuilder& user(std::string text) { return add(MessageStep{{"user", std::move(text)}}); }
  ProgramBuilder& system(std::string text) { return add(MessageStep{{"system", std::move(text)}}); }
  ProgramBuilder& set(std::string name, std::string text) { return add(SetStep{std::move(name), std::move(text)}); }
  ProgramBuilder& gen(std::string name, GenSettings settings = {}) {
    return add(GenStep{std::move(name), std::move(settings)});
  }
  ProgramBuilder& gen(GenStep step) { return add(std::move(step)); }
  ProgramBuilder& select(std::string name, std::vector<std::string> choices) {
    return add(SelectStep{std::move(name), std::move(choices), ""});
  }
  // Starts `count` branches that run the same steps.
  ProgramBuilder& fork(std::string name, int64_t count, const Steps& steps) {
    ForkStep step;
    step.name = std::move(name);
    step.count = count;
    step.branches = {built(steps)};
    return add(std::move(step));
  }
  ProgramBuilder& fork(std::string name, const std::vector<Steps>& branches) {
    ForkStep step;
    step.name = std::move(name);
    for (const Steps& one : branches) step.branches.push_back(built(one));
    return add(std::move(step));
  }
  // Starts a branch for each line of the variable `each`; with `numbered`, for each line "1. ...".
  ProgramBuilder& fork_each(std::string name, std::string each, std::string as, const Steps& steps,
                            bool numbered = false, int64_t most = 16) {
    ForkStep step;
    step.name = std::move(name);
    step.branches = {built(steps)};
    step.each = std::move(each);
    step.as = std::move(as);
    step.numbered = numbered;
    step.most = most;
    return add(std::move(step));
  }
  ProgramBuilder& join(std::string fork, std::string text = "", std::string separator = "\n") {
    return add(JoinStep{std::move(fork), std::move(text), std::move(separator)});
  }
  ProgramBuilder& join_as(JoinStep step) { return add(std::move(step)); }
  ProgramBuilder& vote(std::string name, std::string fork, std::string of, std::string after = "") {
    return add(VoteStep{std::move(name), std::move(fork), std::move(of), std::move(after)});
  }
  ProgramBuilder& vote_as(VoteStep step) { return add(std::move(step)); }
  ProgramBuilder& best(std::string name, std::string fork, std::string of) {
    return add(BestStep{std::move(name), std::move(fork), std::move(of)});
  }
  // Runs the steps if the confidence of the generation `of` is below `below`.
  ProgramBuilder& if_below(std::string of, double below, const Steps& steps) {
    return add(IfStep{std::move(of), below, std::nullopt, built(steps)});
  }
  // Runs the steps if the variable `of` has the value `is`.
  ProgramBuilder& if_is(std::string of, std::string is, const Steps& steps) {
    return add(IfStep{std::move(of), 0, std::move(is), built(steps)});
  }
  ProgramBuilder& output(std::string text) {
    program_.output = std::move(text);
    return *this;
  }
  ProgramBuilder& seed(uint64_t seed) {
    program_.seed = seed;
    return *this;
  }
  ProgramBuilder& messages(std::vector<ProgramMessage> messages) {
    program_.messages = std::move(messages);
    return *this;
  }

  Program take() { return std::move(program_); }

 private:
  ProgramBuilder& add(auto step) {
    program_.steps.push_back({std::move(step)});
    return *this;
  }
  static ProgramSteps built(const Steps& steps) {
    ProgramBuilder branch;
    steps(branch);
    return std::move(branch.program_.steps);
  }

  Program program_;
};

}  // namespace millrace
