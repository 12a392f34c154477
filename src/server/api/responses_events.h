// What /v1/responses writes: the items of an answer, and the numbered events by which a stream tells of them. A whole
// answer is made by the same events, and a stored one is told again by them.
#pragma once

#include "server/api/api.h"
#include "server/generation/response_store.h"

namespace millrace {

// Items are kept in answer.items, the last one of which is open while the choice's part_kind is set.
class ResponseEvents {
 public:
  // Events up to the number `after` are counted, not written.
  explicit ResponseEvents(Answer& answer, int64_t after = -1)
      : answer_(answer), choice_(answer.choices.front()), after_(after) {}

  void event(const char* type, Json data);
  // `logprobs`: of the piece, where it is text; counted with it for who tells it again.
  void piece(const AnswerPiece& piece, Json logprobs = Json::array());
  void close();         // ends the item that is open
  void at_least_one();  // a message without text, where there is nothing else
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

// The response as it stands, without its usage.
Json response_json(const Answer& answer, const char* status, Json output);

// The stream of a stored response, from the event after the number `after`.
std::string stored_response_events(const std::string& id, StoredResponse stored, int64_t after);

}  // namespace millrace
