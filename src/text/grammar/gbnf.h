// GBNF, llama.cpp's grammar notation, and similar EBNF:
//
//   root  ::= (expr "=" term "\n")+      # the first rule is `root`
//   term  ::= [a-z]+ | '0' | "(" expr{1,3} ")" | .
//
// Literals in single or double quotes with \n \r \t \\ \" \' \[ \] \xHH \uHHHH \UHHHHHHHH; classes [a-z] and [^a-z];
// `.` is any character; * + ? {n} {n,} {n,m}. A rule ends where the next one begins.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"

namespace millrace {

// Fills `spec` with the rules. Errors: user (syntax with the line, an unknown rule, no `root`), unsupported (size).
Result<void> parse_gbnf(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits);

}  // namespace millrace
