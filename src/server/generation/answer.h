// Answer: the text generated for a GenerationRequest so far, independent of the API. Each API provides an AnswerFormat,
// the functions that serialize it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "millrace/events.h"
#include "millrace/model.h"
#include "server/generation/generation_request.h"
#include "server/late_json.h"

namespace millrace {

struct ChosenToken {
  TokenId token = -1;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  std::optional<AnswerPiece::Kind> kind;  // the kind of the answer's last piece; none: no piece yet
};

struct ToolCall {
  std::string id, name, arguments;
};

struct Choice {
  std::string text;                   // complete, if the answer is not streamed
  std::string reasoning;              // reasoning so far
  std::vector<ToolCall> calls;        // also of streams
  std::vector<TokenId> tokens;        // if requested
  std::vector<ChosenToken> logprobs;  // complete, or not yet streamed
  FinishReason finish = FinishReason::none;
  std::string stopped_by;   // the stop string
  TokenId stop_token = -1;  // the stop token given by the request
  int64_t text_bytes = 0;   // bytes of text so far, including the echoed prompt
  int64_t generated_tokens = 0, reasoning_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // when it has ended
  int64_t part = -1;                                // in streams with numbered parts: the current one
  std::optional<AnswerPiece::Kind> part_kind;       // ... its kind, while it is open
  std::optional<AnswerPiece::Kind> last_kind;       // kind of the last piece
  size_t streamed_calls = 0;                        // calls that the stream has started
  bool open_custom = false;                         // ... the last one is a custom tool, whose input is sent at its end
  bool begun = false;                               // the stream has started
};

struct Answer {
  const LanguageModel* model = nullptr;
  GenerationRequest params;
  std::string id;                                         // including the API's prefix
  std::string model_name;                                 // as served
  int64_t created = 0;                                    // Unix seconds
  std::vector<Choice> choices;                            // index: prompt * n + answer
  std::vector<std::vector<ChosenToken>> prompt_logprobs;  // for each prompt, if requested
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t longest_tokens = 0;  // tokens of the longest choice
  Json items;                  // /v1/responses: output items so far
  Json deltas;                 // ... the sizes of the pieces in which each was streamed
  int64_t events = 0;          // ... number of events
  std::string chunk_head;      // the common start of all chunks of a stream; cached
  LateArrays late;             // arrays of the text that the format writes
  RequestTimings timings;      // timings of the choice that finished last
  double total_seconds = 0;    // since the request was read and its model loaded

  const AskedPrompt& prompt_of(size_t choice) const {
    return params.prompts[choice / static_cast<size_t>(params.request.n)];
  }
};

// Parts that one event appends to a choice.
struct Delta {
  std::string text;     // the text of `pieces`, if there are any
  AnswerPieces pieces;  // for conversations: text, thinking and calls in order
  TokenId token = -1;   // -1: none
  const ChosenToken* logprob = nullptr;
  FinishReason finish = FinishReason::none;
};

struct AnswerFormat {
  const char* id_prefix;
  const char* stream_type;               // content type
  const char* ping;                      // "": none
  std::string (*begin)(Answer& answer);  // the start of a stream
  std::string (*delta)(Answer& answer, size_t choice, const Delta& delta);
  std::string (*end)(Answer& answer);
  Json (*whole)(Answer& answer);  // its long arrays are in answer.late, and refer to the answer
  // Bytes that each log-probability needs in addition, because the format keeps it as JSON; 0: none.
  int64_t kept_logprob_bytes = 0;
};

// {"weakened": [...]} if parts of the answer's constraint are not enforced, {"dropped": [...]} if parts of the request
// were left out, {"applied": [...]} if techniques were
// chosen for the request, or its prompt was compressed, and {"engine": {...}} if they were for all requests
// (engine_choices.h); {} otherwise.
Json own_facts(const Answer& answer);
// Adds them as "millrace".
void add_own_facts(const Answer& answer, Json& out);

// "data: {...}\n\n"
inline std::string sse_data(const Json& json) { return "data: " + to_text(json) + "\n\n"; }
inline std::string sse_data(const Json& json, LateArrays& late) { return "data: " + to_text(json, late) + "\n\n"; }
// "event: name\ndata: {...}\n\n"
inline std::string sse_event(const char* name, const Json& json) {
  return "event: " + std::string(name) + "\n" + sse_data(json);
}

// As to_text(Json(...)) of a log-probability writes it: -infinity, which JSON lacks, becomes -9999.
void append_logprob(std::string& out, float logprob);
// [116,104]
void append_token_bytes(std::string& out, const LanguageModel& model, TokenId token);

// The token as text, with U+FFFD for bytes that are not valid UTF-8 by themselves; and its bytes.
std::string token_text(const LanguageModel& model, TokenId token);
std::string token_bytes(const LanguageModel& model, TokenId token);

}  // namespace millrace
