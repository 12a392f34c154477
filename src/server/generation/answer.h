// Answer: what has been generated for an GenerationRequest so far, whatever API it goes out by. An API is an
// AnswerFormat: functions that write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/events.h"
#include "millrace/model.h"
#include "server/generation/generation_request.h"

namespace millrace {

struct ChosenToken {
  TokenId token = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  std::optional<AnswerPiece::Kind> kind;  // what the answer was made of so far; none: of nothing yet
};

struct ToolCall {
  std::string id, name, arguments;
};

struct Choice {
  std::string text;                   // all of it, when the answer is sent whole
  std::string reasoning;              // the same
  std::vector<ToolCall> calls;        // the same; of a stream too
  std::vector<TokenId> tokens;        // the same, when asked for
  std::vector<ChosenToken> logprobs;  // the same
  FinishReason finish = FinishReason::none;
  std::string stopped_by;   // a stop string
  TokenId stop_token = -1;  // a token that the request named
  int64_t text_bytes = 0;   // of the text so far, a prompt's echo included
  int64_t generated_tokens = 0, reasoning_tokens = 0;
  int64_t part = -1;                           // of a stream that has numbered parts: the one it is in
  std::optional<AnswerPiece::Kind> part_kind;  // ... while it is open
  std::optional<AnswerPiece::Kind> last_kind;  // of the last piece
  size_t streamed_calls = 0;                   // that a stream has begun
  bool open_custom = false;                    // ... the last of them takes a text, which comes at its end
  bool begun = false;                          // something was streamed
};

struct Answer {
  const LanguageModel* model = nullptr;
  GenerationRequest ask;
  std::string id;                                         // with the API's prefix
  std::string model_name;                                 // as it is served
  int64_t created = 0;                                    // Unix seconds
  std::vector<Choice> choices;                            // prompt x n + answer
  std::vector<std::vector<ChosenToken>> prompt_logprobs;  // of each prompt, when echoed with log-probabilities
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t longest_tokens = 0;  // of one choice
  Json items;                  // of /v1/responses, so far
  Json deltas;                 // ... and for each, the sizes in which it was streamed
  int64_t events = 0;          // of it
  std::string chunk_head;      // of a stream whose chunks all begin alike: that, once the first is written
  RequestTimings timings;      // of the last answer that ended
  double total_seconds = 0;    // since the request came

  const AskedPrompt& prompt_of(size_t choice) const { return ask.prompts[choice / static_cast<size_t>(ask.request.n)]; }
};

// What one event adds to a choice.
struct Delta {
  std::string text;     // of the pieces, where there are some
  AnswerPieces pieces;  // of a conversation: text, thinking and calls in their order
  TokenId token = -1;   // -1: none
  const ChosenToken* logprob = nullptr;
  FinishReason finish = FinishReason::none;
};

struct AnswerFormat {
  const char* id_prefix;
  const char* stream_type;               // content type
  const char* ping;                      // "": the format has none
  std::string (*begin)(Answer& answer);  // what a stream opens with
  std::string (*delta)(Answer& answer, size_t choice, const Delta& delta);
  std::string (*end)(Answer& answer);
  Json (*whole)(Answer& answer);
};

// "millrace": {"weakened": [...]}, where something of what the answer is held to is not kept.
void add_weakened(const Answer& answer, Json& out);

// "data: {...}\n\n"
inline std::string sse_data(const Json& json) { return "data: " + to_text(json) + "\n\n"; }
// "event: name\ndata: {...}\n\n"
inline std::string sse_event(const char* name, const Json& json) {
  return "event: " + std::string(name) + "\n" + sse_data(json);
}

// The token as text, U+FFFD where its bytes alone are none; and its bytes.
std::string token_text(const LanguageModel& model, TokenId token);
std::string token_bytes(const LanguageModel& model, TokenId token);

}  // namespace millrace
