// Regex: PCRE2 with JIT and limits, for split patterns from model files. Patterns are untrusted: their length, match
// steps, depth and heap are bounded, and compile() rejects a pattern that reaches the step limit on short probe texts
// (catastrophic backtracking). Immutable; find_all() may be called from any thread. Invalid UTF-8 in the subject is
// allowed and matches nothing.
#pragma once

#include <cstddef>
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

  // Calls found(begin, end) for every non-empty match, left to right, and returns text.size(). If a match reaches a
  // limit, stops and returns the offset from which the text was not searched.
  size_t find_all(std::string_view text, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace millrace
