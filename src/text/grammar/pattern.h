// Parser of regular expressions, for JSON Schema's `pattern` and the regex constraint. The syntax is that of ECMA-262
// with the u flag, over code points. Look-around, back references and word boundaries are rejected.
//
//   a|b  (..) (?:..) (?<name>..)  x* x+ x? x{2} x{2,} x{2,5}, also lazy  . [a-z] [^..] ^ $
//   \d \D \w \W \s \S \t \n \v \f \r \0 \cX \xHH \uHHHH \u{H..} \p{Lu} \P{L} and escaped punctuation
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/grammar/dfa.h"
#include "text/grammar/expr.h"

namespace millrace {

// Errors: user (invalid syntax; the message has the place), unsupported (a rejected construct).
Result<ExprId> parse_pattern(GrammarSpec& spec, std::string_view pattern, Spelling spelling,
                             const GrammarLimits& limits);

// Returns the automaton of texts that contain a match of the pattern anywhere, which is JSON Schema's meaning.
Result<Dfa> search_dfa(std::string_view pattern, Spelling spelling, const GrammarLimits& limits);

}  // namespace millrace
