// Strings under patterns, formats and lengths, as automata over their one spelling in JSON (Spelling::json).
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

// The regex of a format that is kept; "" for one that is taken as an annotation, as the standard allows.
std::string_view format_pattern(std::string_view format);

// Whether the standard defines it.
bool standard_format(std::string_view format);

// Texts that JSON Schema's `pattern` allows. Look-ahead is kept where it stands at the pattern's begin, behind ^.
// Errors: user (a regex), unsupported (a regex, too many states).
Result<Dfa> schema_pattern_dfa(std::string_view pattern, const GrammarLimits& limits);

// Without the quotes. Errors: user (a regex), unsupported (a regex, too many states).
Result<Dfa> string_dfa(const StringBounds& bounds, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
