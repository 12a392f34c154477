// Exercises of one task (lab/task.h), held out from training, answered greedily.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "compare/answer_suite.h"
#include "compare/suites/records.h"
#include "lab/lab_files.h"

namespace millrace {
namespace {

constexpr int64_t kLabItems = 100;
constexpr int64_t kLabCandidates = 3;  // for each item: those that do not fit the context are passed over
constexpr int64_t kLabAnswerTokens = 256;
constexpr int64_t kLabCharactersPerToken = 3;  // about, of these texts, with a small vocabulary

Result<std::unique_ptr<SuiteRun>> begin_lab(std::span<const CompareConfig> configs, const SuiteInput& input) {
  const LabTask* const task = find_lab_task(input.argument);
  if (!task) return Error::user(fmt::format("no such task; there are {}", lab_task_names()));
  int64_t context = INT64_MAX;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  LabLengths lengths;
  const int64_t answer = std::min(kLabAnswerTokens, context / 2);
  lengths.most = std::clamp((context - answer) * kLabCharactersPerToken, lengths.least, lengths.most);
  const int64_t count = input.items > 0 ? input.items : kLabItems;
  std::vector<AnswerQuestion> questions;
  for (int64_t i = 0; i < kLabCandidates * count; ++i) {
    auto item =
        std::make_shared<LabItem>(make_lab_item(*task, 0, static_cast<uint64_t>(i), LabSplit::held_out, lengths));
    AnswerQuestion question;
    question.request.messages = lab_item_json(*item)["messages"];
    question.request.documents = item->documents;
    question.request.max_tokens = answer;
    if (task->grows) question.group = std::to_string(std::bit_ceil(item->prompt().size()));
    question.score = [task, item](const std::string& given) { return task->score(*item, given); };
    questions.push_back(std::move(question));
  }
  return begin_answer_suite(configs, input, "lab:" + input.argument, "score", std::move(questions), count);
}

}  // namespace

const CompareSuite kLabSuite = {
    .name = "lab",
    .argument = "TASK",
    .summary = "exercises with exact answers, greedy (see `millrace lab`)",
    .paper = "",
    .begin = begin_lab,
};

}  // namespace millrace
