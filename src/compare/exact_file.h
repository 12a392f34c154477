// Published files of questions whose answers are generated: GSM8K (Cobbe et al., 2021, "Training Verifiers to Solve
// Math Word Problems") and BIG-Bench Hard (Suzgun et al., 2022, "Challenging BIG-Bench Tasks and Whether
// Chain-of-Thought Can Solve Them"). Neither file has examples to show first, so its first questions are shown as
// examples and not asked.
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
  std::string prompt;  // with the examples
  std::string answer;
};

struct ExactFile {
  std::string name;               // "gsm8k", "bbh:word_sorting"
  bool number = false;            // the answer is the last number of the generated text, not its first line
  std::vector<std::string> stop;  // end an answer
  int64_t max_tokens = 64;
  std::vector<ExactQuestion> questions;
};

// Errors: user (no such file, neither form), corrupt (a question).
Result<ExactFile> read_exact_file(const std::string& path);

// Returns true if the generated text has the answer. GSM8K: the number behind ####, or else the last number; commas,
// dollar signs and a full stop at the end do not count. BBH: the first line without spaces around it.
bool exact_match(const ExactFile& file, const std::string& answer, std::string_view generated);

}  // namespace millrace
