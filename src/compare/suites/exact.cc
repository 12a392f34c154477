// GSM8K and BIG-Bench Hard: answers are generated greedily after some examples and must be the right ones
// (exact_file.h).
#include <fmt/format.h>

#include "compare/answer_suite.h"
#include "compare/exact_file.h"
#include "compare/suites/records.h"

namespace millrace {
namespace {

constexpr int64_t kExactItems = 50;

Result<std::unique_ptr<SuiteRun>> begin_exact(std::span<const CompareConfig> configs, const SuiteInput& input) {
  MILLRACE_TRY(ExactFile read, read_exact_file(input.argument));
  const auto file = std::make_shared<const ExactFile>(std::move(read));
  std::vector<AnswerQuestion> questions;
  for (const ExactQuestion& from : file->questions) {
    AnswerQuestion question;
    question.request.text = from.prompt;
    question.request.max_tokens = file->max_tokens;
    question.request.stop = file->stop;
    question.score = [file, answer = from.answer](const std::string& given) {
      return exact_match(*file, answer, given) ? 1.0 : 0.0;
    };
    questions.push_back(std::move(question));
  }
  return begin_answer_suite(configs, input, "exact:" + file->name, "exact_match", std::move(questions), kExactItems);
}

}  // namespace

const CompareSuite kExactSuite = {
    .name = "exact",
    .argument = "FILE",
    .summary = "GSM8K or a task of BIG-Bench Hard by generated answers, from the published file",
    .paper =
        "Cobbe et al., 2021, Training Verifiers to Solve Math Word Problems; "
        "Suzgun et al., 2022, Challenging BIG-Bench Tasks and Whether Chain-of-Thought Can Solve Them",
    .begin = begin_exact,
};

}  // namespace millrace
