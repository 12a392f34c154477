// Shared by embeddings, scores and rankings: reads a request's texts as tokens, and embeds them for the response.
#pragma once

#include "server/api/api.h"
#include "server/service.h"

namespace millrace {

using Wrong = std::optional<ApiError>;
using EmbeddedTexts = EmbeddingWorker::Vectors;

inline constexpr size_t kMaxTexts = 2048;  // per request

struct TextTokens {
  std::string prefix;  // put before texts, but not before tokens
  std::vector<std::vector<TokenId>> texts;
  int64_t prompt_tokens = 0;
  std::vector<size_t> truncated;  // indices of texts truncated to the context
};

// Adds `input`, a text or its tokens. `name` is the field, for error messages.
Wrong add_text(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out);
// Adds a string, tokens, or a list of either.
Wrong add_texts(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out);

// The request's `pooling`, or the model's default.
Wrong read_pooling(const ServedModel& served, const Json& body, Pooling* pooling);
// Variant for endpoints that need one vector of each text: rejects "none".
Wrong read_vector_pooling(const ServedModel& served, const Json& body, Pooling* pooling);

ApiError too_many_tokens(const char* field, const std::string& what, int64_t count, int64_t most);

// Embeds the texts and replies on the exchange with the JSON that `write` creates from the vectors, which are not
// normalized. The tokens are charged to the request's key.
Wrong embed_texts(Call& call, const Exchange& exchange, const Dialect& dialect, std::vector<std::vector<TokenId>> texts,
                  Pooling pooling, int64_t prompt_tokens, std::function<Json(EmbeddedTexts&)> write);

// The prefix of the task that `field` names, or of the model's default task (prompt/task_prefixes.h).
Wrong read_prefix(const ServedModel& served, const char* field, const std::optional<std::string>& task,
                  TextTokens& out);

Field text_field(const char* name, unsigned types, bool required, const char* help);
Field pooling_field();
Field prompt_name_field();

std::vector<Endpoint> ranking_endpoints();  // rerank and score: rerank.cc

}  // namespace millrace
