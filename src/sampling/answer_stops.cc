#include "sampling/answer_stops.h"

#include <utility>

namespace millrace {

Result<AnswerStops> AnswerStops::create(const Request& request) {
  AnswerStops out;
  MILLRACE_TRY(out.stops_, StopMatcher::create(request.stop, request.include_stop));
  const ThinkingBudget& thinking = request.thinking;
  if (request.stop.empty() || thinking.close.empty()) return out;
  out.open_ = thinking.open;
  out.close_ = thinking.close;
  out.call_ = thinking.call;
  out.place_ = thinking.begun ? Place::thinking : Place::begin;
  return out;
}

std::string AnswerStops::push(std::string_view text) {
  if (place_ == Place::answer) return stops_.push(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (place_ == Place::answer) return out + stops_.push(text.substr(i));
    held_ += text[i];
    out += place_ == Place::begin ? take_begin() : take_thinking();
  }
  return out;
}

// Thinking begins only at the start of the text, after white space.
std::string AnswerStops::take_begin() {
  const size_t begin = held_.find_first_not_of(" \n\r\t");
  if (begin == std::string::npos) return "";
  const auto said = std::string_view(held_).substr(begin);
  if (said == open_) {
    place_ = Place::thinking;
    return std::exchange(held_, {});
  }
  if (open_.starts_with(said)) return "";
  place_ = Place::answer;
  return stops_.push(std::exchange(held_, {}));
}

std::string AnswerStops::take_thinking() {
  std::string out;
  while (!held_.empty() && !close_.starts_with(held_) && !call_.starts_with(held_)) {
    out += held_.front();
    held_.erase(0, 1);
  }
  if (held_.empty() || (held_ != close_ && held_ != call_)) return out;
  place_ = Place::answer;
  const std::string marker = std::exchange(held_, {});
  return out + (marker == call_ ? stops_.push(marker) : marker);
}

std::string AnswerStops::flush() {
  std::string held = std::exchange(held_, {});
  std::string out = place_ == Place::begin ? stops_.push(held) : std::move(held);
  return out + stops_.flush();
}

}  // namespace millrace
