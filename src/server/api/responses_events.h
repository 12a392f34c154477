// The output items of /v1/responses, and the numbered events that stream them. This code also builds complete responses
// and replays stored ones.
#pragma once

#include "server/api/api.h"
#include "server/generation/response_store.h"

namespace millrace {

// Items are in answer.items; the last one is open while the choice's part_kind is set.
class ResponseEvents {
 public:
  // Events up to number `after` are counted but not written.
  explicit ResponseEvents(Answer& answer, int64_t after = -1)
      : answer_(answer), choice_(answer.choices.front()), after_(after) {}

  void event(const char* type, Json data);
  // `logprobs` belong to the piece if it is text; their count is recorded for replay.
  void piece(const AnswerPiece& piece, Json logprobs = Json::array());
  void close();         // ends the open item
  void at_least_one();  // adds a message without text if there are no items
  std::string take() { return std::move(bytes_); }

 private:
  std::string item_id() const { return answer_.id.substr(5) + std::to_string(answer_.items.size()); }
  Json& item() { return answer_.items.back(); }
  void add(AnswerPiece::Kind kind, Json item);
  void open(AnswerPiece::Kind kind);
  void open_call(const std::string& name);
  void close_call();
  void part_event(const char* type, const char* key, const std::string& text, Json logprobs);

  Answer& answer_;
  Choice& choice_;
  const int64_t after_;
  std::string bytes_;
};

// The response so far, without usage.
Json response_json(const Answer& answer, const char* status, Json output);

// The event stream of a stored response, from the event after number `after`.
std::string stored_response_events(const std::string& id, StoredResponse stored, int64_t after);

}  // namespace millrace
