// A small parser for English that finds the constituents of a sentence by rules (prompt/constituents.h). It knows
// parentheses, commas, prepositional phrases, relative and adverbial clauses, adverbs, and adjectives before nouns. Its
// attachment rules are simple: a phrase ends where its noun phrase ends, a clause at a comma or before the next finite
// verb. Pure function.
#pragma once

#include <span>
#include <string>

#include "prompt/constituents.h"

namespace millrace {

// Returns the constituents as ranges of `words`, which are written as in the text, with white space and marks.
Constituents parse_english(std::span<const std::string> words);

}  // namespace millrace
