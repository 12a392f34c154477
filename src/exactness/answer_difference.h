// Compares two answers to the same request, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "exactness/completion_answer.h"

namespace millrace {

// The most visible difference of two answers.
struct AnswerDifference {
  enum class Part { tokens, text, reasoning, finish, logprobs };
  Part part = Part::tokens;
  size_t place = 0;   // index of the first differing token; for text and reasoning, of the first differing byte
  double change = 0;  // largest absolute change of a log-probability

  std::string words() const;  // "tokens from 5", "log-probabilities from 3, by 1.2e-06"
};

// Compares tokens, text, reasoning and finish reason, then log-probabilities and the likeliest tokens. If one of the
// answers has no log-probabilities, neither they nor tokens are compared. Returns nothing if the answers are equal.
std::optional<AnswerDifference> compare_answers(const CompletionAnswer& expected, const CompletionAnswer& got);

// Describes one position of an answer: the token with its log-probability, or 40 bytes of text or reasoning.
std::string describe_place(const CompletionAnswer& answer, const AnswerDifference& difference);

}  // namespace millrace
