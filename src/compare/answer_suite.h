// AnswerSuite: a suite of questions with exact answers. Each answer is generated through the engine and scored by a
// function of its text. Metrics: the mean score, and if any configuration compresses prompts, their mean tokens.
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
  std::string group;                                // group for which figures are also computed; "": none
  std::function<double(const std::string&)> score;  // returns the score of an answer's text, 0 to 1
};

// Begins a suite of the questions that fit every configuration's context. It has the first input.items of these
// questions, or the first `otherwise` if input.items is 0. Errors: user (no question fits), those of templates and
// tokenizers.
Result<std::unique_ptr<SuiteRun>> begin_answer_suite(std::span<const CompareConfig> configs, const SuiteInput& input,
                                                     const std::string& name, const std::string& metric,
                                                     std::vector<AnswerQuestion> questions, int64_t otherwise);

}  // namespace millrace
