// Reasoning: the text that a model writes before its answer, between markers that its chat template names. The prompt
// may already end with the opening marker, or with a closed empty block if reasoning is disabled.
//
//   <think>reasoning</think>answer
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/tools/tool_dialect.h"

namespace millrace {

struct ReasoningMarks {
  const char* open;
  const char* close;
};

std::span<const ReasoningMarks> reasoning_marks();
// The markers of a template, or null.
const ReasoningMarks* reasoning_marks_of(std::string_view chat_template);

// The state at the end of the prompt: reasoning may begin, has begun, or is over.
enum class ReasoningPlace { begin, inside, behind };
ReasoningPlace reasoning_place(std::string_view prompt, const ReasoningMarks& marks);

// Splits the streamed text of one answer into reasoning and the rest. White space next to the markers is dropped.
class ReasoningSplitter {
 public:
  ReasoningSplitter(const ReasoningMarks& marks, ReasoningPlace place)
      : open_(marks.open), close_(marks.close), place_(place) {}

  // Adds pieces of reasoning to `out`; returns the remaining text.
  std::string push(std::string_view text, AnswerPieces& out);
  std::string finish(AnswerPieces& out);

 private:
  void take_reasoning(char c, AnswerPieces& out);
  std::string_view open_, close_;
  ReasoningPlace place_;
  std::string held_, space_;
  bool some_ = false;  // non-blank reasoning was emitted
  bool lead_ = false;  // directly after the closing marker: white space is dropped
};

// The structure of an answer, preceded by reasoning that may occur or has already begun.
nlohmann::ordered_json behind_reasoning(nlohmann::ordered_json structure, const ReasoningMarks& marks,
                                        ReasoningPlace place);

// Whether a control token is part of an answer's text: markers of reasoning and of calls.
bool is_marker(std::string_view text);

}  // namespace millrace
