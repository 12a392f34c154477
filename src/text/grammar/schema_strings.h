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

// Returns the regex of an enforced format; "" for a format that is only an annotation, as the standard allows.
std::string_view format_pattern(std::string_view format);

// Returns true if the standard defines the format.
bool standard_format(std::string_view format);

// Returns the automaton of the texts that JSON Schema's `pattern` allows. Look-ahead is supported only at the start of
// the pattern, directly after ^. Errors: user (an invalid regex), unsupported (a construct of the regex, too many
// states).
Result<Dfa> schema_pattern_dfa(std::string_view pattern, const GrammarLimits& limits);

// Returns the automaton of the strings within `bounds`, without the quotes. Errors: user (an invalid regex),
// unsupported (a construct of a regex, too many states).
Result<Dfa> string_dfa(const StringBounds& bounds, const GrammarLimits& limits, std::string_view what);

}  // namespace millrace
