// GBNF, llama.cpp's grammar notation, and similar EBNF:
//
//   root  ::= (expr "=" term "\n")+      # the first rule is `root`
//   term  ::= [a-z]+ | '0' | "(" expr{1,3} ")" | .
//
// Supported are literals in single or double quotes with \n \r \t \\ \" \' \[ \] \xHH \uHHHH \UHHHHHHHH, classes [a-z]
// and [^a-z], `.` for any character, and * + ? {n} {n,} {n,m}. A rule ends where the next rule begins.
#pragma once

#include <string_view>

#include "text/grammar/dfa.h"

namespace millrace {

// Fills `spec` with the rules. Errors: user (invalid syntax, with the line; an unknown rule; no `root`), unsupported
// (too large).
Result<void> parse_gbnf(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits);

}  // namespace millrace
