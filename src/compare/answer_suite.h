// AnswerSuite: a suite of questions with exact answers. Each answer is generated through the engine and scored by a
// function of its text. Metric: the mean score.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compare/answers.h"
#include "compare/suite.h"

namespace millrace {

struct AnswerQuestion {
  AnswerRequest request;
  std::string group;                                // group with separate figures; "": none
  std::function<double(const std::string&)> score;  // 0 to 1, of the answer's text
};

// Begins a suite of the questions that fit every configuration's context: the first input.items of them, or `otherwise`
// if that is 0. Errors: user (none fits), those of templates and tokenizers.
Result<std::unique_ptr<SuiteRun>> begin_answer_suite(std::span<const CompareConfig> configs, const SuiteInput& input,
                                                     const std::string& name, const std::string& metric,
                                                     std::vector<AnswerQuestion> questions, int64_t otherwise);

}  // namespace millrace
