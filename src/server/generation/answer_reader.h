// AnswerReader: one answer's text, as it comes, to thinking, text and calls of tools.
//
//   engine's text --> ReasoningSplitter --> CallParser --> pieces
#pragma once

#include <memory>
#include <optional>

#include "server/generation/answer.h"

namespace millrace {

class AnswerReader {
 public:
  // Null where there is nothing to look for.
  static std::unique_ptr<AnswerReader> create(const GenerationRequest& ask);

  // `last`: nothing follows.
  AnswerPieces read(std::string_view text, bool last);

 private:
  std::optional<ReasoningSplitter> splitter_;
  std::unique_ptr<CallParser> parser_;
  std::string held_;  // of one read
};

// Adds a delta's pieces to the choice: calls get their ids here. Text and thinking are kept where the answer is sent
// whole.
void take_pieces(Choice& choice, const Delta& delta, const GenerationRequest& ask, bool keep_text);

// "call_" and 24 letters and digits, or nine alone.
std::string new_call_id(bool is_short);

}  // namespace millrace
