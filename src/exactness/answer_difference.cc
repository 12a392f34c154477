#include "exactness/answer_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/enum_table.h"
#include "base/ordered_json.h"

namespace millrace {
namespace {

using Part = AnswerDifference::Part;

constexpr size_t kShownBytes = 40;
constexpr EnumNames<Part> kPartNames("tokens", "text", "reasoning", "finish reason", "log-probabilities");

size_t first_difference(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::optional<AnswerDifference> compare_tokens(const CompletionAnswer& expected, const CompletionAnswer& got) {
  const size_t both = std::min(expected.tokens.size(), got.tokens.size());
  for (size_t i = 0; i < both; ++i)
    if (expected.tokens[i].text != got.tokens[i].text) return AnswerDifference{Part::tokens, i, 0};
  if (expected.tokens.size() != got.tokens.size()) return AnswerDifference{Part::tokens, both, 0};
  return std::nullopt;
}

// Returns the change of the log-probabilities of one position; infinite if the likeliest tokens differ.
double change_of(const AnsweredToken& expected, const AnsweredToken& got) {
  if (expected.logprob.has_value() != got.logprob.has_value()) return INFINITY;
  double change = expected.logprob ? std::abs(*expected.logprob - *got.logprob) : 0;
  if (expected.top.size() != got.top.size()) return INFINITY;
  for (size_t i = 0; i < expected.top.size(); ++i) {
    if (expected.top[i].first != got.top[i].first) return INFINITY;
    change = std::max(change, std::abs(expected.top[i].second - got.top[i].second));
  }
  return change;
}

std::optional<AnswerDifference> compare_logprobs(const CompletionAnswer& expected, const CompletionAnswer& got) {
  AnswerDifference found{Part::logprobs, expected.tokens.size(), 0};
  for (size_t i = 0; i < expected.tokens.size(); ++i) {
    const double change = change_of(expected.tokens[i], got.tokens[i]);
    if (change == 0) continue;
    found.place = std::min(found.place, i);
    found.change = std::max(found.change, change);
  }
  if (found.change == 0) return std::nullopt;
  return found;
}

std::string quoted(const std::string& text) {
  return nlohmann::ordered_json(text).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string bytes_from(const std::string& text, size_t at) {
  return text.substr(std::min(at, text.size()), kShownBytes);
}

}  // namespace

std::string AnswerDifference::words() const {
  const std::string name(kPartNames[part]);
  if (part == Part::finish) return name;
  if (part == Part::text || part == Part::reasoning) return fmt::format("{} from byte {}", name, place);
  if (part == Part::tokens) return fmt::format("{} from {}", name, place);
  return std::isinf(change) ? fmt::format("{} from {}: other likeliest tokens", name, place)
                            : fmt::format("{} from {}, by {:.2g}", name, place, change);
}

std::optional<AnswerDifference> compare_answers(const CompletionAnswer& expected, const CompletionAnswer& got) {
  const bool tokens = !expected.tokens.empty() && !got.tokens.empty();
  if (tokens)
    if (auto found = compare_tokens(expected, got)) return found;
  if (expected.text != got.text) return AnswerDifference{Part::text, first_difference(expected.text, got.text), 0};
  if (expected.reasoning != got.reasoning)
    return AnswerDifference{Part::reasoning, first_difference(expected.reasoning, got.reasoning), 0};
  if (expected.finish != got.finish) return AnswerDifference{Part::finish, expected.tokens.size(), 0};
  return tokens ? compare_logprobs(expected, got) : std::nullopt;
}

std::string describe_place(const CompletionAnswer& answer, const AnswerDifference& difference) {
  if (difference.part == Part::finish) return fmt::format("finish reason {}", quoted(answer.finish));
  const size_t at = difference.place;
  if (difference.part == Part::text) return fmt::format("byte {}: {}", at, quoted(bytes_from(answer.text, at)));
  if (difference.part == Part::reasoning)
    return fmt::format("byte {} of the reasoning: {}", at, quoted(bytes_from(answer.reasoning, at)));
  if (at >= answer.tokens.size()) return fmt::format("token {}: none, the answer has ended", at);
  const AnsweredToken& token = answer.tokens[at];
  std::string out = fmt::format("token {}: {}", at, quoted(token.text));
  if (token.logprob) out += fmt::format(", log-probability {}", *token.logprob);
  for (const auto& [text, logprob] : token.top)
    out += fmt::format("{} {} {}", &text == &token.top.front().first ? "; likeliest" : ",", quoted(text), logprob);
  return out;
}

}  // namespace millrace
