// Regex: PCRE2 with JIT behind limits, for split patterns that come from files. Patterns are untrusted: their
// length, match steps, depth and heap are bounded, and compile() refuses a pattern that runs into the step
// limit on short probe texts (catastrophic backtracking). Immutable; find() may be called from any thread.
// Invalid UTF-8 in the subject is allowed and matches nothing.
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
  // Syntax of Rust's / Oniguruma's regexes as far as PCRE2 shares it; \s also matches U+0085.
  static Result<Regex> compile(std::string_view pattern);

  // Calls found(begin, end) for every non-empty match, left to right, and returns text.size(); after a
  // match that hit a limit, returns the offset from which nothing was searched.
  size_t find_all(std::string_view text, const std::function<void(size_t, size_t)>& found) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace millrace
