// Reads published files of questions whose answers are generated: GSM8K (Cobbe et al., 2021, "Training Verifiers to
// Solve Math Word Problems") and BIG-Bench Hard (Suzgun et al., 2022, "Challenging BIG-Bench Tasks and Whether
// Chain-of-Thought Can Solve Them"). Neither file has separate examples, so a file's first questions are shown as
// examples in the prompts and are not asked.
//
//   GSM8K  JSON lines {"question", "answer"}; the number behind #### is the answer
//   BBH    {"examples": [{"input", "target"}]}
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct ExactQuestion {
  std::string prompt;  // the question, preceded by the examples
  std::string answer;
};

struct ExactFile {
  std::string name;               // "gsm8k", "bbh:word_sorting"
  bool number = false;            // true: the answer is the last number of the generated text; false: its first line
  std::vector<std::string> stop;  // texts that end an answer
  int64_t max_tokens = 64;
  std::vector<ExactQuestion> questions;
};

// Errors: user (the file does not exist or has neither form), corrupt (a question).
Result<ExactFile> read_exact_file(const std::string& path);

// Returns true if the generated text has the answer. For GSM8K, it compares the number after #### (or else the last
// number), without commas, dollar signs and a final full stop. For BBH, it compares the first line without surrounding
// spaces.
bool exact_match(const ExactFile& file, const std::string& answer, std::string_view generated);

}  // namespace millrace
