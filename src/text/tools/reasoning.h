// Reasoning: the text that a model writes before its answer, between markers that its chat template names. The prompt
// may already end with the opening marker, or with a closed empty block if reasoning is disabled.
//
//   <think>reasoning</think>answer
//
// A tool call that begins before the closing marker also ends the reasoning.
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
// Returns the markers of a template; null: it has none.
const ReasoningMarks* reasoning_marks_of(std::string_view chat_template);

// The state at the end of the prompt: reasoning may begin, has begun, or is over.
enum class ReasoningPlace { begin, inside, behind };
ReasoningPlace reasoning_place(std::string_view prompt, const ReasoningMarks& marks);

// Splits the streamed text of one answer into reasoning and the answer proper. White space next to the markers is
// dropped. `call_start`: text that begins a tool call and thereby ends the reasoning (ToolDialect::start); "": calls do
// not end it.
class ReasoningSplitter {
 public:
  ReasoningSplitter(const ReasoningMarks& marks, ReasoningPlace place, std::string_view call_start = {})
      : open_(marks.open), close_(marks.close), call_(call_start), place_(place) {}

  // Adds pieces of reasoning to `out`. Returns the text that is not reasoning.
  std::string push(std::string_view text, AnswerPieces& out);
  std::string finish(AnswerPieces& out);
  bool ended_by_call() const { return ended_by_call_; }

 private:
  void take_reasoning(char c, AnswerPieces& out);
  void take_inside(AnswerPieces& out, std::string& rest);
  std::string_view open_, close_, call_;
  ReasoningPlace place_;
  std::string held_, space_;
  bool some_ = false;  // non-blank reasoning was emitted
  bool lead_ = false;  // directly after the closing marker: white space is dropped
  bool ended_by_call_ = false;
};

// Drops the closing marker that a model writes after a call that ended its reasoning. Only the first text after the
// call is examined, because a later marker is part of the answer, and a marker inside a call is part of its arguments.
class LateCloseFilter {
 public:
  explicit LateCloseFilter(std::string_view close) : close_(close) {}
  void filter(AnswerPieces& pieces);
  void finish(AnswerPieces& pieces);  // appends the text that is held back

 private:
  std::string_view close_;
  std::string held_;
  bool done_ = false, lead_ = false;
};

// How an answer continues if a tool call ends its reasoning.
struct EarlyCalls {
  const ToolDialect* dialect = nullptr;  // null: calls do not end reasoning
  std::span<const Tool> tools;
  ToolChoice wish;  // `required`: no text follows the calls
};

// Returns `structure` preceded by reasoning, which may occur or has already begun (`place`).
nlohmann::ordered_json behind_reasoning(nlohmann::ordered_json structure, const ReasoningMarks& marks,
                                        ReasoningPlace place, const EarlyCalls& calls = {});

// Returns true if the control token `text` is part of an answer's text: a marker of reasoning or of calls.
bool is_marker(std::string_view text);

}  // namespace millrace
