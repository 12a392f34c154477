// CompletionAnswer: the answer of a server with OpenAI's API, whole or streamed, in one form that can be compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "exactness/completion_call.h"

namespace millrace {

struct AnsweredToken {
  std::string text;
  std::optional<double> logprob;                    // none: the server sent null
  std::vector<std::pair<std::string, double>> top;  // the likeliest tokens, likeliest first, then by text
};

struct CompletionAnswer {
  std::string text;
  std::string reasoning;              // the text that a reasoning model sends in a field of its own
  std::string finish;                 // "stop", "length"; "": not named
  std::vector<AnsweredToken> tokens;  // empty: the server sent no log-probabilities, so tokens are unknown
  int64_t cached_tokens = -1;         // prompt tokens read from a cache; -1: the server does not say
};

// Parses the body of an answer with status 200; `api`: completions or chat. Log-probabilities may have the form of
// either API. Accepts any bytes. Errors: corrupt (the answer has no choice), internal (a stream that ends with an
// error).
Result<CompletionAnswer> read_whole_answer(CompletionApi api, std::string_view body);
Result<CompletionAnswer> read_streamed_answer(CompletionApi api, std::string_view body);

// Returns the error for an HTTP status other than 200: unsupported (400, 404, 405, 413, 422), user (401, 403), resource
// (429, 503), internal (any other).
Error status_error(int status, std::string_view body);

}  // namespace millrace
