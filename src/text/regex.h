// Regex: PCRE2 with JIT and limits, for split patterns from model files. Patterns are untrusted: their length, match
// steps, depth and heap are bounded. compile() rejects a pattern that reaches the step limit on short probe texts
// (catastrophic backtracking). find_all() counts its work, which may be no more than a multiple of the text's length: a
// pattern that scans a long run again from each of its characters would need quadratic time. Immutable; find_all() may
// be called from any thread. Invalid UTF-8 in the subject is allowed and matches nothing.
//
// A match is searched in a window of the text. If PCRE2 reports that it would read beyond the window's end (a partial
// match), the one start that does so is tried again with windows, and limits of steps, that grow fourfold. This work is
// counted. All other work is at most a window for each character.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

class Regex {
 public:
  // The common subset of PCRE2 and Rust / Oniguruma syntax; \s also matches U+0085.
  static Result<Regex> compile(std::string_view pattern);

  // Units of work for a text, to be shared by all its parts.
  static int64_t work_for(size_t bytes) { return 32 * static_cast<int64_t>(bytes) + (1 << 22); }

  // Calls found(begin, end) for every non-empty match, left to right, and returns text.size(). If a match reaches a
  // limit, or `work` is used up, stops and returns the offset from which the text was not searched. `work`: in and out,
  // units that are left.
  size_t find_all(std::string_view text, int64_t& work, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace millrace
