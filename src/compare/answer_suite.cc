#include "compare/answer_suite.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/suite_text.h"

namespace millrace {
namespace {

constexpr int64_t kAnswersAtOnce = 8;  // also the branches of a program
constexpr int64_t kItemsAtOnce = 16;   // of one configuration before the next one has its turn

constexpr const char *kPromptMetric = "prompt_tokens", *kGeneratedMetric = "generated_tokens", *kCostMetric = "cost",
                     *kSecondsMetric = "seconds";

class AnswerSuiteRun final : public SuiteRun {
 public:
  AnswerSuiteRun(std::span<const CompareConfig> configs, SuitePlan plan, std::vector<AnswerQuestion> questions,
                 int64_t longest)
      : questions_(std::move(questions)), engines_(configs, kAnswersAtOnce, longest) {
    plan_ = std::move(plan);
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    std::vector<AnswerRequest> requests;
    for (const size_t item : items) requests.push_back(questions_[item].request);
    MILLRACE_TRY(const auto answers, engines_.answer(config, requests, wanted));
    std::vector<std::vector<double>> out;
    for (size_t i = 0; i < items.size(); ++i) {
      out.push_back({questions_[items[i]].score(answers[i].text)});
      for (size_t metric = 1; metric < plan_.metrics.size(); ++metric)
        out.back().push_back(value_of(plan_.metrics[metric].name, answers[i]));
    }
    return out;
  }

 private:
  static double value_of(const std::string& metric, const GeneratedAnswer& answer) {
    if (metric == kSecondsMetric) return answer.seconds > 0 ? answer.seconds : kNoValue;
    if (metric == kCostMetric) return answer.cost > 0 ? answer.cost : kNoValue;
    const int64_t tokens = metric == kGeneratedMetric ? answer.generated_tokens : answer.prompt_tokens;
    return tokens > 0 ? static_cast<double>(tokens) : kNoValue;
  }

  std::vector<AnswerQuestion> questions_;
  AnswerEngines engines_;
};

std::string identity_of_questions(const std::vector<AnswerQuestion>& questions) {
  std::vector<std::string> parts;
  for (const AnswerQuestion& question : questions) {
    const AnswerRequest& request = question.request;
    parts.push_back(request.messages.is_null() ? request.text : request.messages.dump());
    parts.push_back(std::to_string(request.max_tokens));
    for (const std::string& stop : request.stop) parts.push_back(stop);
    for (const std::string& document : request.documents) parts.push_back(document);
  }
  return identity_of(parts);
}

}  // namespace

Result<std::unique_ptr<SuiteRun>> begin_answer_suite(std::span<const CompareConfig> configs, const SuiteInput& input,
                                                     const std::string& name, const std::string& metric,
                                                     std::vector<AnswerQuestion> questions, int64_t otherwise) {
  SuitePlan plan{.name = name, .metrics = {{metric}}, .at_once = kItemsAtOnce};
  std::vector<AnswerRequest> requests;
  for (const AnswerQuestion& question : questions) requests.push_back(question.request);
  int64_t longest = 1;
  MILLRACE_TRY(auto fitting, fitting_requests(configs, requests, longest));
  if (fitting.empty())
    return Error::user(
        fmt::format("none of {} questions fits the context with its answer; use a longer -c", questions.size()));
  const int64_t most = input.items > 0 ? input.items : otherwise;
  if (most < std::ssize(fitting)) fitting.resize(static_cast<size_t>(most));
  std::vector<AnswerQuestion> kept;
  for (const size_t index : fitting) {
    plan.items.push_back(questions[index].group);
    kept.push_back(std::move(questions[index]));
  }
  plan.identity = identity_of_questions(kept);
  if (std::ranges::any_of(configs, [](const CompareConfig& one) { return !one.prompt_passes.empty(); })) {
    plan.metrics.push_back({kPromptMetric, false});
    plan.identity += " prompt_tokens";
  }
  // One question at a time, so that its time is its own.
  if (std::ranges::any_of(configs, [](const CompareConfig& one) { return !one.program.empty(); })) {
    for (const char* added : {kPromptMetric, kGeneratedMetric, kCostMetric, kSecondsMetric})
      plan.metrics.push_back({added, false});
    plan.identity += " program";
    plan.at_once = 1;
    plan.timed = true;
  }
  plan.sight.prompts = true;
  plan.sight.documents =
      std::ranges::any_of(kept, [](const AnswerQuestion& question) { return !question.request.documents.empty(); });
  return std::unique_ptr<SuiteRun>(
      std::make_unique<AnswerSuiteRun>(configs, std::move(plan), std::move(kept), longest));
}

}  // namespace millrace
