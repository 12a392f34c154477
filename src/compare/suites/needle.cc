// A number hidden in a long text, to be found again (Kamradt, 2023, "Needle In A Haystack"): each length of the text
// with each depth of the number is a group, which together make a heat map. The answer continues a sentence, so any
// model can take part. The text is the beginning of --text, or simple sentences.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "compare/answer_suite.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"
#include "lab/lab_random.h"

namespace millrace {
namespace {

constexpr std::array kDepths = {0, 25, 50, 75, 100};  // percent
constexpr int64_t kLengths = 4, kMinLength = 128;     // each half of the next one
constexpr int64_t kNeedlesPerCell = 4;
constexpr int64_t kNeedleAnswerTokens = 16;
constexpr int64_t kAroundHaystack = 80;  // tokens of the needle, the question and a margin
constexpr uint64_t kNeedleSeed = 0x6e6565646c65;
constexpr std::array<std::string_view, 8> kNeedleKeys = {"door",   "garden", "river",  "castle",
                                                         "forest", "window", "market", "tower"};

// The end of the sentence at or behind `from`, for a cut there.
size_t sentence_end(std::string_view text, size_t from) {
  const size_t end = text.find_first_of(".!?\n", std::min(from, text.size()));
  return end == std::string_view::npos ? text.size() : end + 1;
}

// About `tokens` tokens of the haystack, from its beginning over and over.
Result<std::string> haystack_of(const LanguageModel& model, const std::string& text, int64_t tokens) {
  const std::string sample = text.substr(0, 20'000);
  MILLRACE_TRY(const auto encoded, model.encode(sample, false, false));
  const double per_token =
      static_cast<double>(sample.size()) / static_cast<double>(std::max<size_t>(1, encoded.size()));
  const auto length = static_cast<size_t>(static_cast<double>(tokens) * per_token);
  std::string out;
  while (out.size() < length) out += text + (text.ends_with('\n') ? "" : " ");
  out.resize(std::min(out.size(), length));
  const size_t end = out.find_last_of(".!?\n");
  if (end != std::string::npos && end > length / 2) out.resize(end + 1);
  while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
  return out;
}

// 1 if the first number in the text is this one.
double score_number(const std::string& text, int64_t number) {
  const size_t begin = text.find_first_of("0123456789");
  if (begin == std::string::npos) return 0;
  const size_t end = std::min(text.size(), text.find_first_not_of("0123456789", begin));
  return text.substr(begin, end - begin) == std::to_string(number) ? 1 : 0;
}

AnswerQuestion hide_needle(const std::string& haystack, int64_t length, int depth, uint64_t number) {
  LabRandom random(kNeedleSeed, number, 0);
  const std::string key(random.pick(std::span<const std::string_view>(kNeedleKeys)));
  const int64_t value = random.between(1000, 9999);
  const size_t at = depth == 0 ? 0 : sentence_end(haystack, haystack.size() * static_cast<size_t>(depth) / 100);
  AnswerQuestion out;
  out.request.text = haystack.substr(0, at) + fmt::format(" The special number of the {} is {}.", key, value) +
                     haystack.substr(at) + fmt::format("\n\nThe special number of the {} is", key);
  out.request.max_tokens = kNeedleAnswerTokens;
  out.group = fmt::format("{}/{}%", length, depth);
  out.score = [value](const std::string& given) { return score_number(given, value); };
  return out;
}

Result<int64_t> longest_haystack(const SuiteInput& input, std::span<const CompareConfig> configs) {
  int64_t context = INT64_MAX, longest = 0;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  if (context < kMinLength)
    return Error::user(fmt::format("needs a context of {} tokens, this one has {}", kMinLength, context));
  if (input.argument.empty()) return context;
  const char *begin = input.argument.data(), *end = begin + input.argument.size();
  const auto [rest, error] = std::from_chars(begin, end, longest);
  if (error != std::errc() || rest != end || longest < kMinLength || longest > context)
    return Error::user(
        fmt::format("'{}' is no length; must be {} to {} tokens, the context", input.argument, kMinLength, context));
  return longest;
}

Result<std::unique_ptr<SuiteRun>> begin_needle(std::span<const CompareConfig> configs, const SuiteInput& input) {
  if (!configs.front().model) return Error::user("the base must be a configuration of millrace");
  MILLRACE_TRY(const int64_t longest, longest_haystack(input, configs));
  const std::string text = input.text.empty() ? filler_text(100'000) : input.text;
  std::vector<AnswerQuestion> questions;
  for (int64_t of = kLengths; of-- > 0;) {
    const int64_t length = longest >> of;
    if (length < kMinLength) continue;
    MILLRACE_TRY(const std::string haystack,
                 haystack_of(*configs.front().model, text, length - kAroundHaystack - kNeedleAnswerTokens));
    for (const int depth : kDepths)
      for (int64_t i = 0; i < (input.items > 0 ? input.items : kNeedlesPerCell); ++i)
        questions.push_back(hide_needle(haystack, length, depth, questions.size()));
  }
  SuiteInput all = input;
  all.items = std::ssize(questions);
  return begin_answer_suite(configs, all, "needle", "accuracy", std::move(questions), all.items);
}

}  // namespace

const CompareSuite kNeedleSuite = {
    .name = "needle",
    .argument = "[TOKENS]",
    .summary = "a number to be found in a long text, by length and depth; --items counts those of a cell",
    .paper = "Kamradt, 2023, Needle In A Haystack",
    .begin = begin_needle,
};

}  // namespace millrace
