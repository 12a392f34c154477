// Regular expressions as JSON Schema's `pattern` and the regex constraint write them: ECMA-262's syntax with the u
// flag, over code points. Look-around, back references and word boundaries are refused: they are not regular or not
// kept here.
//
//   a|b  (..) (?:..) (?<name>..)  x* x+ x? x{2} x{2,} x{2,5} (lazy ones alike)  . [a-z] [^..] ^ $
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

// What JSON Schema means by a pattern: texts in which it occurs somewhere.
Result<Dfa> search_dfa(std::string_view pattern, Spelling spelling, const GrammarLimits& limits);

}  // namespace millrace
