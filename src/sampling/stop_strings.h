// StopMatcher: passes generated text through until a stop string occurs. Text that may be the beginning of a stop
// string is held back until the following text decides, so that no part of a match is shown (unless `keep`). A text of
// n bytes costs O(n * stop strings) (Knuth, Morris and Pratt, 1977). One per sequence; copyable.
//
//   stop "END"      push("the E") -> "the "   push("N") -> ""   push("Ding") -> ""        stopped()
//                   push("the E") -> "the "   push("gg") -> "Egg"  flush() -> ""
//
// If several stop strings end at the same byte, the text is cut before the one that began first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

class StopMatcher {
 public:
  StopMatcher() = default;  // no stop strings: everything passes
  // `keep`: include the matched stop string at the end of the text. Errors: user (an empty stop string, a stop string
  // of more than 4096 bytes, more than 256 stop strings).
  static Result<StopMatcher> create(std::vector<std::string> stop, bool keep = false);

  // Consumes more text; returns the part that may be shown now. After a match it returns nothing.
  std::string push(std::string_view text);
  // Ends the generation: returns the text that was held back (nothing after a match).
  std::string flush();

  bool stopped() const { return matched_ >= 0; }
  const std::string& matched() const { return patterns_[static_cast<size_t>(matched_)].text; }  // only when stopped()
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // border[i]: length of the longest proper prefix of text[0..i] that is its suffix
    uint32_t state = 0;            // length of the longest prefix of `text` that the pushed text ends with
  };
  std::vector<Pattern> patterns_;
  std::string held_;  // text that was pushed and not yet returned
  int matched_ = -1;
  bool keep_ = false;
};

}  // namespace millrace
