// The first turns of Spec-Bench (Xia et al., 2024, "Unlocking Efficiency in Large Language Model Inference: A
// Comprehensive Survey of Speculative Decoding"), one answer at a time: tokens per step of the model, tokens a second,
// and whether the answer is the base's, token by token. Every category is a group.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compare/answers.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"

namespace millrace {
namespace {

constexpr int64_t kSpecItems = 24;
constexpr size_t kShownPositions = 4;  // of drafts

class SpecRun final : public SuiteRun {
 public:
  SpecRun(std::span<const CompareConfig> configs, SuitePlan plan, std::vector<AnswerRequest> prompts, int64_t longest)
      : configs_(configs), prompts_(std::move(prompts)), engines_(configs, 1, longest) {
    plan_ = std::move(plan);
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    if (configs_[config].external) return Error::unsupported("another engine's tokens are not known");
    std::vector<std::vector<double>> out;
    for (const size_t item : items) {
      if (config != 0 && item != base_item_) {
        MILLRACE_TRY_VOID(answer_base(item, wanted));
      }
      MILLRACE_TRY(const auto answers, engines_.answer(config, std::span(&prompts_[item], 1), wanted));
      const GeneratedAnswer& answer = answers.front();
      if (config == 0) {
        base_item_ = item;
        base_tokens_ = answer.tokens;
      }
      const auto tokens = static_cast<double>(answer.timings.generated_tokens);
      const double seconds = answer.timings.decode_seconds;
      const int64_t steps = model_passes(answer.timings, configs_[config].drafts_with_model);
      const auto passes = static_cast<double>(steps);
      out.push_back({passes > 0 ? tokens / passes : kNoValue, seconds > 0 ? (tokens - 1) / seconds : kNoValue,
                     answer.tokens == base_tokens_ ? 1.0 : 0.0});
      for (size_t i = 0; i < kShownPositions; ++i) out.back().push_back(accepted_at(answer.timings, i));
    }
    return out;
  }

 private:
  // Of an answer's drafts that reached a position, the share that was accepted there.
  static double accepted_at(const RequestTimings& timings, size_t position) {
    if (position >= timings.drafted_at.size()) return kNoValue;
    return static_cast<double>(timings.accepted_at[position]) / static_cast<double>(timings.drafted_at[position]);
  }

  Result<void> answer_base(size_t item, const SuiteWanted& wanted) {
    MILLRACE_TRY(const auto answers, engines_.answer(0, std::span(&prompts_[item], 1), wanted));
    base_item_ = item;
    base_tokens_ = answers.front().tokens;
    return {};
  }

  std::span<const CompareConfig> configs_;
  std::vector<AnswerRequest> prompts_;
  AnswerEngines engines_;
  size_t base_item_ = SIZE_MAX;
  std::vector<TokenId> base_tokens_;
};

struct SpecPrompt {
  std::string category, text;
};

// One of each category, then the next of each, and so on: the first ones are of all kinds.
void take_turns(std::vector<SpecPrompt>& prompts) {
  std::map<std::string, int64_t> seen;
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < prompts.size(); ++i) order.emplace_back(seen[prompts[i].category]++, i);
  std::ranges::sort(order);
  std::vector<SpecPrompt> out;
  for (const auto& [turn, index] : order) out.push_back(std::move(prompts[index]));
  prompts = std::move(out);
}

Result<std::vector<SpecPrompt>> read_spec_file(const std::string& path) {
  MILLRACE_TRY(const auto lines, read_json_lines(path));
  std::vector<SpecPrompt> out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = fmt::format("{}: question {}", path, i + 1);
    SpecPrompt prompt;
    MILLRACE_TRY(prompt.category, text_field(lines[i], "category", where));
    const auto turns = lines[i].find("turns");
    if (turns == lines[i].end() || !turns->is_array() || turns->empty() || !turns->front().is_string())
      return Error::corrupt(where + ": has no text in \"turns\"");
    prompt.text = turns->front().get<std::string>();
    out.push_back(std::move(prompt));
  }
  take_turns(out);
  return out;
}

Result<std::unique_ptr<SuiteRun>> begin_spec(std::span<const CompareConfig> configs, const SuiteInput& input) {
  if (!configs.front().model) return Error::user("the base must be a configuration of millrace");
  MILLRACE_TRY(const auto prompts, read_spec_file(input.argument));
  std::vector<AnswerRequest> all;
  for (const SpecPrompt& prompt : prompts)
    all.push_back({.messages = user_message(prompt.text), .max_tokens = input.generate});
  int64_t longest = 1;
  MILLRACE_TRY(auto fitting, fitting_requests(configs, all, longest));
  if (fitting.empty()) return Error::user(fmt::format("none of {} prompts fits the context", all.size()));
  const int64_t most = input.items > 0 ? input.items : kSpecItems;
  if (most < std::ssize(fitting)) fitting.resize(static_cast<size_t>(most));
  SuitePlan plan{.name = "spec",
                 .metrics = {{"tokens_per_step"}, {"tokens_per_s", true, SuiteAverage::median}, {"same_as_base"}},
                 .timed = true};
  for (size_t i = 0; i < kShownPositions; ++i) plan.metrics.push_back({fmt::format("accepted_{}", i)});
  std::vector<AnswerRequest> kept;
  std::vector<std::string> parts = {std::to_string(input.generate), std::to_string(input.threads),
                                    std::to_string(kShownPositions)};
  for (const size_t index : fitting) {
    plan.items.push_back(prompts[index].category);
    parts.push_back(prompts[index].text);
    kept.push_back(all[index]);
  }
  plan.identity = identity_of(parts);
  return std::unique_ptr<SuiteRun>(std::make_unique<SpecRun>(configs, std::move(plan), std::move(kept), longest));
}

}  // namespace

const CompareSuite kSpecSuite = {
    .name = "spec",
    .argument = "FILE",
    .summary =
        "Spec-Bench's prompts: tokens per step and per second, answers equal to the base's; from the published file",
    .paper =
        "Xia et al., 2024, Unlocking Efficiency in Large Language Model Inference: A Comprehensive Survey of "
        "Speculative Decoding",
    .begin = begin_spec,
};

}  // namespace millrace
