// AnswerGroup: passes on the events of one request's answers. If more answers are generated than were requested
// (Request::best_of), it holds the events back until the last answer has ended, and then emits those of the best ones.
//
// The score is that of OpenAI's best_of: the mean log-probability of an answer's tokens, by the model's distribution
// before any sampling step. Answers that ended by themselves rank before those that were cut off. Among equal scores
// the first wins.
#pragma once

#include <cstdint>
#include <vector>

#include "millrace/events.h"

namespace millrace {

class AnswerGroup {
 public:
  AnswerGroup(int64_t written, int64_t wanted)
      : left_(written), wanted_(wanted), held_(written > wanted ? static_cast<size_t>(written) : 0) {}

  bool ranks() const { return !held_.empty(); }
  // One event of the answer `event.answer`, in the order of its tokens; `score` counts on its last one. Appends the
  // events that may go out now to `events`, with `last` set on the request's last one.
  void add(TokenEvent event, double score, std::vector<TokenEvent>& events);

 private:
  struct Held {
    std::vector<TokenEvent> events;
    double score = 0;
    int cut = 0;  // 0: whole, 1: cut off, 2: failed
  };
  void publish(std::vector<TokenEvent>& events);

  int64_t left_, wanted_;
  std::vector<Held> held_;
};

}  // namespace millrace
