// Reads published files of multiple-choice questions: HellaSwag, MMLU, LAMBADA (see suites/choice.cc).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compare/likelihood.h"

namespace millrace {

struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> answers;  // possible answers; if there is only one, the model must predict it
  size_t right = 0;
  std::string group;
};

struct ChoiceFile {
  std::string name;     // "hellaswag"
  std::string between;  // characters before each answer, which do not count for its length: " "
  std::vector<ChoiceQuestion> questions;
};

// Errors: user (the file does not exist or has none of these forms), corrupt (a question).
Result<ChoiceFile> read_choice_file(const std::string& path);

// Returns {acc_norm, acc}, each 0 or 1. Among equal likelihoods, the first answer counts as chosen.
std::vector<double> score_choice(const ChoiceQuestion& question, std::span<const ContinuationScore> scores);

}  // namespace millrace
