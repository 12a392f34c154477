// What embeddings, scores and rankings read alike: texts of a request to tokens, and tokens to vectors that answer it.
#pragma once

#include "server/api/api.h"
#include "server/service.h"

namespace millrace {

using Wrong = std::optional<ApiError>;
using TextVectors = EmbeddingWorker::Vectors;

inline constexpr size_t kMostTexts = 2048;  // of one request

struct TextTokens {
  std::vector<std::vector<TokenId>> texts;
  int64_t prompt_tokens = 0;
  std::vector<size_t> truncated;  // texts that were cut to the context
};

// `input` is a text or its tokens. The first is for messages: the field.
Wrong add_text(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out);
// A string, tokens, or a list of such.
Wrong add_texts(const ServedModel& served, const char* name, const Json& input, bool truncate, TextTokens& out);

// The request's `pooling`, or the model's.
Wrong read_pooling(const ServedModel& served, const Json& body, Pooling* pooling);

ApiError too_many_tokens(const char* field, const std::string& what, int64_t count, int64_t most);

// Has them embedded and answers the exchange with what `write` makes of the vectors, which are not normalized. The
// request's key is charged with the tokens.
Wrong embed_texts(Call& call, const Exchange& exchange, const Dialect& dialect, std::vector<std::vector<TokenId>> texts,
                  Pooling pooling, int64_t prompt_tokens, std::function<Json(TextVectors&)> write);

Field text_field(const char* name, unsigned types, bool required, const char* help);
Field pooling_field();

std::vector<Endpoint> ranking_endpoints();  // rerank and score: rerank.cc

}  // namespace millrace
