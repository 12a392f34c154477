#include "server/generation/answer.h"

#include "run/language_model.h"
#include "text/detokenizer.h"

namespace millrace {

std::string token_bytes(const LanguageModel& model, TokenId token) {
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  return tokenizer && token >= 0 && token < tokenizer->vocab_size() ? tokenizer->piece(token) : std::string();
}

std::string token_text(const LanguageModel& model, TokenId token) {
  Utf8Stream text;
  std::string out = text.push(token_bytes(model, token));
  return out + text.flush();
}

void add_own_facts(const Answer& answer, Json& out) {
  if (!answer.params.compiled.notes.empty()) out["millrace"]["weakened"] = answer.params.compiled.notes;
  if (!answer.params.applied.is_null()) out["millrace"]["applied"] = answer.params.applied;
}

}  // namespace millrace
