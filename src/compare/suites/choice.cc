// Questions with given answers, of which the likeliest counts as chosen, scored as lm-evaluation-harness does
// (likelihood.h): `acc` by the sum of log-probabilities, `acc_norm` by that over the answer's length in characters.
// Files as published, told apart by their form:
//
//   HellaSwag  six lines a question: context, number of the right ending from 0, four endings
//   MMLU       {"samples": [{"prompt", "options": [" A", ...], "input_label", "topic"}]}
//   LAMBADA    JSON lines {"text"}: the last word is to be predicted; acc: all its tokens are the likeliest ones
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/json_text.h"
#include "compare/choice_file.h"
#include "compare/likelihood.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"

namespace millrace {
namespace {

constexpr int64_t kChoiceItems = 100;

class ChoiceRun final : public SuiteRun {
 public:
  ChoiceRun(std::span<const CompareConfig> configs, SuitePlan plan, ChoiceFile file, int threads)
      : file_(std::move(file)), scorers_(configs, threads) {
    plan_ = std::move(plan);
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    std::vector<Continuation> all;
    for (const size_t item : items)
      for (const std::string& answer : file_.questions[item].answers)
        all.push_back({file_.questions[item].context, file_.between + answer});
    MILLRACE_TRY(const auto scores, scorers_.score(config, all, wanted));
    std::vector<std::vector<double>> out;
    for (size_t i = 0, first = 0; i < items.size(); ++i) {
      const ChoiceQuestion& question = file_.questions[items[i]];
      const auto own = std::span(scores).subspan(first, question.answers.size());
      first += own.size();
      if (question.answers.size() == 1)
        out.push_back({own[0].greedy ? 1.0 : 0.0, -own[0].log_likelihood});
      else
        out.push_back(score_choice(question, own));
    }
    return out;
  }

 private:
  ChoiceFile file_;
  LikelihoodScorers scorers_;
};

// Questions whose answers all configurations can score.
Result<std::vector<ChoiceQuestion>> scorable(std::span<const CompareConfig> configs, const ChoiceFile& file,
                                             int64_t most) {
  std::vector<ChoiceQuestion> out;
  for (const ChoiceQuestion& question : file.questions) {
    bool fits = true;
    for (const CompareConfig& config : configs)
      for (const std::string& answer : question.answers)
        if (config.model && fits)
          fits = encode_continuation(*config.model, {question.context, file.between + answer}, compare_context(config))
                     .ok();
    if (fits) out.push_back(question);
    if (std::ssize(out) == most) break;
  }
  if (out.empty()) return Error::user("no question has an answer that can be scored");
  return out;
}

Result<std::unique_ptr<SuiteRun>> begin_choice(std::span<const CompareConfig> configs, const SuiteInput& input) {
  MILLRACE_TRY(ChoiceFile file, read_choice_file(input.argument));
  MILLRACE_TRY(file.questions, scorable(configs, file, input.items > 0 ? input.items : kChoiceItems));
  const bool alone = file.questions.front().answers.size() == 1;
  SuitePlan plan{.name = fmt::format("choice:{}", file.name), .at_once = 8, .sight = {.generates = false}};
  if (alone)
    plan.metrics = {{"acc"}, {"perplexity", false, SuiteAverage::exponential}};
  else
    plan.metrics = {{"acc_norm"}, {"acc"}};
  std::vector<std::string> parts = {file.between};
  for (const ChoiceQuestion& question : file.questions) {
    plan.items.push_back(question.group);
    parts.push_back(question.context);
    for (const std::string& answer : question.answers) parts.push_back(answer);
  }
  plan.identity = identity_of(parts);
  return std::unique_ptr<SuiteRun>(
      std::make_unique<ChoiceRun>(configs, std::move(plan), std::move(file), input.threads));
}

}  // namespace

const CompareSuite kChoiceSuite = {
    .name = "choice",
    .argument = "FILE",
    .summary = "HellaSwag, MMLU or LAMBADA by likelihood, from the published file",
    .paper = "Gao et al., 2021, A framework for few-shot language model evaluation",
    .begin = begin_choice,
};

}  // namespace millrace
