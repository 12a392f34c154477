// Patterns, formats and lengths of strings, as automata over the canonical JSON spelling (Spelling::json).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/dfa.h"

namespace millrace {

struct StringBounds {
  std::vector<std::string> patterns, not_patterns, formats;
  std::vector<std::string> excluded;               // whole strings
  uint32_t min_length = 0, max_length = kNoLimit;  // code points
  bool lengths_only() const { return patterns.empty() && not_patterns.empty() && formats.empty() && excluded.empty(); }
};

// The regex of an enforced format; "" for one treated as an annotation, as the standard allows.
std::string_view format_pattern(std::string_view format);

// Returns true if the standard defines the format.
bool standard_format(std::string_view format);

// Texts that JSON Schema's `pattern` allows. Look-ahead is supported at the start of the pattern, directly after ^.
// Errors: user (a regex), unsupported (a regex, too many states).
Result<Dfa> schema_pattern_dfa(std::string_view pattern, const GrammarLimits& limits);

// Without the quotes. Errors: user (a regex), unsupported (a regex, too many states).
Result<Dfa> string_dfa(const StringBounds& bounds, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
