#include "server/generation/answer.h"

#include <algorithm>

#include "run/language_model.h"
#include "server/generation/engine_choices.h"
#include "server/models/served_model.h"
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

void append_logprob(std::string& out, float logprob) { out += to_text(Json(std::max(logprob, -9999.0f))); }

void append_token_bytes(std::string& out, const LanguageModel& model, TokenId token) {
  out += '[';
  for (const char c : token_bytes(model, token)) {
    if (out.back() != '[') out += ',';
    out += std::to_string(static_cast<int>(static_cast<unsigned char>(c)));
  }
  out += ']';
}

Json own_facts(const Answer& answer) {
  Json out = Json::object();
  const GenerationRequest& params = answer.params;
  if (!params.compiled.notes.empty()) out["weakened"] = params.compiled.notes;
  if (!params.dropped.empty()) out["dropped"] = params.dropped;
  if (!params.applied.is_null()) out["applied"] = params.applied;
  if (!params.sources.is_null()) out["sources"] = params.sources;
  if (!params.served) return out;
  const ServedModel& served = *params.served;
  if (Json engine = engine_choices(served.engine_options, params.request, router_of(served), lossy_weights_of(served));
      !engine.empty())
    out["engine"] = std::move(engine);
  return out;
}

void add_own_facts(const Answer& answer, Json& out) {
  if (Json facts = own_facts(answer); !facts.empty()) out["millrace"] = std::move(facts);
}

}  // namespace millrace
