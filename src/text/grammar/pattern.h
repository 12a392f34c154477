// Parser of regular expressions, for JSON Schema's `pattern` and the regex constraint: ECMA-262 syntax with the u flag,
// over code points. Look-around, back references and word boundaries are rejected: they are not regular or not
// implemented.
//
//   a|b  (..) (?:..) (?<name>..)  x* x+ x? x{2} x{2,} x{2,5} (lazy ones too)  . [a-z] [^..] ^ $
//   \d \D \w \W \s \S \t \n \v \f \r \0 \cX \xHH \uHHHH \u{H..} \p{Lu} \P{L} and escaped punctuation
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/grammar/dfa.h"
#include "text/grammar/expr.h"

namespace millrace {

// Errors: user (syntax, with the place), unsupported (a construct above).
Result<ExprId> parse_pattern(GrammarSpec& spec, std::string_view pattern, Spelling spelling,
                             const GrammarLimits& limits);

// JSON Schema's meaning of a pattern: texts in which it occurs anywhere.
Result<Dfa> search_dfa(std::string_view pattern, Spelling spelling, const GrammarLimits& limits);

}  // namespace millrace
