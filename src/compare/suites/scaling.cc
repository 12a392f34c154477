// Time and memory against context: prompts of 128 tokens, twice as many, and so on up to the context, each followed by
// 16 generated tokens. A length is a group, an item a round of it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "compare/answers.h"
#include "compare/speed.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"

namespace millrace {
namespace {

constexpr int64_t kShortestPrompt = 128, kScalingGenerate = 16;

class ScalingRun final : public SuiteRun {
 public:
  ScalingRun(std::span<const CompareConfig> configs, const SuiteInput& input, const std::vector<int64_t>& lengths)
      : configs_(configs), input_(input), longest_(lengths.back() + kScalingGenerate), engines_(configs.size()) {
    plan_ = {.name = "scaling",
             .identity = identity_of({input.text.substr(0, 4096), std::to_string(input.threads)}),
             .metrics = {{"ttft_ms", false, SuiteAverage::median},
                         {"decode_tokens_per_s", true, SuiteAverage::median},
                         {"kv_bytes", false, SuiteAverage::median}},
             .timed = true,
             .overall = false,
             .sight = {.quality = false}};
    for (int64_t round = 0; round < std::max<int64_t>(1, input.rounds); ++round)
      for (const int64_t length : lengths) {
        lengths_.push_back(length);
        plan_.items.push_back(std::to_string(length));
      }
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    const CompareConfig& of = configs_[config];
    if (!of.model) return Error::unsupported("only millrace's configurations are measured by context");
    if (!engines_[config]) {
      MILLRACE_TRY(engines_[config], make_compare_engine(of, 1, longest_));
      MILLRACE_TRY(const GeneratedAnswer warm, answer_length(config, kShortestPrompt, wanted));
      static_cast<void>(warm);
    }
    std::vector<std::vector<double>> out;
    for (const size_t item : items) {
      const int64_t length = lengths_[item];
      MILLRACE_TRY(const GeneratedAnswer answer, answer_length(config, length, wanted));
      MILLRACE_TRY(const int64_t bytes, stream_kv_bytes(of, length, length + kScalingGenerate));
      const RequestTimings& t = answer.timings;
      out.push_back({1000 * t.first_token_seconds,
                     t.decode_seconds > 0 ? static_cast<double>(t.generated_tokens - 1) / t.decode_seconds : kNoValue,
                     static_cast<double>(bytes)});
    }
    return out;
  }

 private:
  Result<GeneratedAnswer> answer_length(size_t config, int64_t length, const SuiteWanted& wanted) {
    const CompareConfig& of = configs_[config];
    Request request;
    MILLRACE_TRY(request.prompt, timed_prompt(*of.model, input_.text, length));
    request.sampling = of.sampling;
    request.max_tokens = kScalingGenerate;
    request.ignore_eos = true;
    request.cache_prompt = false;
    return answer_alone(*engines_[config], std::move(request), wanted);
  }

  std::span<const CompareConfig> configs_;
  SuiteInput input_;
  int64_t longest_;
  std::vector<int64_t> lengths_;  // [items]
  std::vector<std::unique_ptr<Engine>> engines_;
};

Result<std::unique_ptr<SuiteRun>> begin_scaling(std::span<const CompareConfig> configs, const SuiteInput& input) {
  int64_t context = INT64_MAX, longest = 0;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  longest = context - kScalingGenerate;
  if (!input.argument.empty()) {
    const char *begin = input.argument.data(), *end = begin + input.argument.size();
    const auto [rest, error] = std::from_chars(begin, end, longest);
    if (error != std::errc() || rest != end || longest < kShortestPrompt || longest > context - kScalingGenerate)
      return Error::user(fmt::format("'{}' is no length; must be {} to {} tokens", input.argument, kShortestPrompt,
                                     context - kScalingGenerate));
  }
  std::vector<int64_t> lengths;
  for (int64_t length = kShortestPrompt; length < longest; length *= 2) lengths.push_back(length);
  lengths.push_back(longest);
  if (longest < 1) return Error::user(fmt::format("the context of {} tokens is too short", context));
  return std::unique_ptr<SuiteRun>(std::make_unique<ScalingRun>(configs, input, lengths));
}

}  // namespace

const CompareSuite kScalingSuite = {
    .name = "scaling",
    .argument = "[TOKENS]",
    .summary = "time to the first token, decode speed and KV bytes by the prompt's length",
    .paper = "",
    .begin = begin_scaling,
};

}  // namespace millrace
