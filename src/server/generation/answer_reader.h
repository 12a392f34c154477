// AnswerReader: splits the generated text of one answer, as it arrives, into thinking, text and tool calls.
//
//   engine's text --> ReasoningSplitter --> CallParser --> pieces
#pragma once

#include <memory>
#include <optional>

#include "server/generation/answer.h"

namespace millrace {

class AnswerReader {
 public:
  // Null if there is nothing to parse.
  static std::unique_ptr<AnswerReader> create(const GenerationRequest& params);

  // `last`: no more text follows.
  AnswerPieces read(std::string_view text, bool last);

 private:
  std::optional<ReasoningSplitter> splitter_;
  std::optional<LateCloseFilter> late_close_;
  std::unique_ptr<CallParser> parser_;
  std::string held_;  // data of one read
};

// Adds a delta's pieces to the choice, and assigns the ids of calls. `keep_text`: also collect text and thinking, for
// answers that are not streamed.
// `number`: the choice's index.
void take_pieces(Choice& choice, size_t number, const Delta& delta, const GenerationRequest& params, bool keep_text);

// The id of a choice's next call, which depends on the answer's id alone: "call_" and 24 letters and digits, or just
// nine.
std::string call_id(std::string_view answer_id, size_t choice, size_t call, bool is_short);

}  // namespace millrace
