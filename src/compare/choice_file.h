// Published files of questions with given answers: HellaSwag, MMLU, LAMBADA (see suites/choice.cc).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "compare/likelihood.h"

namespace millrace {

struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> answers;  // one only: it is to be predicted
  size_t right = 0;
  std::string group;
};

struct ChoiceFile {
  std::string name;     // "hellaswag"
  std::string between;  // the answer's first characters, which do not count as its length: " "
  std::vector<ChoiceQuestion> questions;
};

// Errors: user (no such file, none of these forms), corrupt (a question).
Result<ChoiceFile> read_choice_file(const std::string& path);

// {acc_norm, acc}, each 0 or 1; of equal likelihoods the first counts.
std::vector<double> score_choice(const ChoiceQuestion& question, std::span<const ContinuationScore> scores);

}  // namespace millrace
