// AnswerStops: stop strings that apply only to the answer, not to the thinking part before it. One per sequence;
// copyable.
//
//   stop "END", thinking up to "</think>"
//   push("so END is")     -> "so END is"
//   push("</think>a END") -> "</think>a "     stopped()
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "millrace/request.h"
#include "sampling/stop_strings.h"

namespace millrace {

class AnswerStops {
 public:
  AnswerStops() = default;  // no stop strings: everything passes
  // Errors: those of StopMatcher::create().
  static Result<AnswerStops> create(const Request& request);

  // Consumes generated text; returns the part that may be shown now. After a match it returns nothing.
  std::string push(std::string_view text);
  // Ends the generation: returns the text that was held back (nothing after a match).
  std::string flush();

  bool stopped() const { return stops_.stopped(); }
  const std::string& matched() const { return stops_.matched(); }  // only when stopped()

 private:
  enum class Place { begin, thinking, answer };
  std::string take_begin();
  std::string take_thinking();

  StopMatcher stops_;
  Place place_ = Place::answer;
  std::string open_, close_, call_;
  std::string held_;  // text before the answer that is held back because it may be the beginning of a marker
};

}  // namespace millrace
