// Regex: PCRE2 with JIT and limits, for split patterns from model files. Patterns are untrusted: their length, match
// steps, depth and heap are bounded. compile() rejects a pattern that reaches the step limit on short probe texts
// (catastrophic backtracking). find_all() limits its work to a multiple of the text's length, because some patterns
// need quadratic time: they scan a long run again from each of its characters. Immutable; find_all() may be called from
// any thread. The text may contain invalid UTF-8, which matches nothing.
//
// A match is searched in a window of the text. If PCRE2 would read beyond the window's end (a partial match), the match
// is tried again from the same start, with windows and step limits that grow fourfold. This work is counted. All other
// work is at most one window per character.
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
  // Compiles a pattern in the common subset of PCRE2 and Rust / Oniguruma syntax; \s also matches U+0085.
  static Result<Regex> compile(std::string_view pattern);

  // Returns the units of work for a text of this size; searches in all its parts share them.
  static int64_t work_for(size_t bytes) { return 32 * static_cast<int64_t>(bytes) + (1 << 22); }

  // Calls found(begin, end) for every non-empty match, left to right, and returns text.size(). If a match reaches a
  // limit or `work` is used up, stops and returns the offset up to which the text was searched. `work`: in and out,
  // remaining units.
  size_t find_all(std::string_view text, int64_t& work, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace millrace
