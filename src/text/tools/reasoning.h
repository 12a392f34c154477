// Thinking: what a model writes for itself before it answers, between marks that its chat template names. The template
// may have opened it already, as the prompt's last words, or closed it again, where no thinking is wanted.
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
// Those of a template; null: none.
const ReasoningMarks* reasoning_marks_of(std::string_view chat_template);

// Where the prompt leaves off: in the middle of thinking, behind it, or where thinking may begin.
enum class ReasoningPlace { begin, inside, behind };
ReasoningPlace reasoning_place(std::string_view prompt, const ReasoningMarks& marks);

// One answer's text to reasoning and the rest, as it comes. White space beside the marks is left out.
class ReasoningSplitter {
 public:
  ReasoningSplitter(const ReasoningMarks& marks, ReasoningPlace place)
      : open_(marks.open), close_(marks.close), place_(place) {}

  // Adds pieces of reasoning to `out`; returns the rest's text.
  std::string push(std::string_view text, AnswerPieces& out);
  std::string finish(AnswerPieces& out);

 private:
  void take_reasoning(char c, AnswerPieces& out);
  std::string_view open_, close_;
  ReasoningPlace place_;
  std::string held_, space_;
  bool some_ = false;  // reasoning that is not white space has come
  bool lead_ = false;  // right behind the closing mark: white space is left out
};

// What an answer is held to, behind thinking that may come before it or has begun.
nlohmann::ordered_json behind_reasoning(nlohmann::ordered_json structure, const ReasoningMarks& marks,
                                        ReasoningPlace place);

// Control tokens with these texts are part of an answer's text: marks of thinking and of calls.
bool is_marker(std::string_view text);

}  // namespace millrace
