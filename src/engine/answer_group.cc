#include "engine/answer_group.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace millrace {

void AnswerGroup::add(TokenEvent event, double score, std::vector<TokenEvent>& events) {
  const bool ended = event.finish != FinishReason::none;
  left_ -= ended;
  event.last = ended && left_ == 0 && !ranks();
  if (!ranks()) {
    events.push_back(std::move(event));
    return;
  }
  Held& held = held_[static_cast<size_t>(event.answer)];
  if (ended) {
    held.score = score;
    held.cut = event.finish == FinishReason::error
                   ? 2
                   : event.finish != FinishReason::stop && event.finish != FinishReason::length;
  }
  held.events.push_back(std::move(event));
  if (left_ == 0) publish(events);
}

void AnswerGroup::publish(std::vector<TokenEvent>& events) {
  std::vector<size_t> order(held_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return std::tuple(held_[i].cut, -held_[i].score); });
  for (int64_t answer = 0; answer < wanted_; ++answer) {
    Held& held = held_[order[static_cast<size_t>(answer)]];
    held.events.back().score = held.score;
    for (TokenEvent& event : held.events) {
      event.answer = answer;
      events.push_back(std::move(event));
    }
  }
  events.back().last = true;
}

}  // namespace millrace
