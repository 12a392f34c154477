// Constituents of a sentence, as a compressor needs them: what may be left out while the rest remains a sentence, and
// the core that remains. A constituent is a range of words or of tokens.
//
//   The man   who lives here   quickly   bought   an old   car    in Rome .
//   core      modifier         modifier  core     ...      core   modifier      "old" is a modifier too
#pragma once

#include <vector>

#include "prompt/text_units.h"

namespace millrace {

struct Constituents {
  std::vector<TokenRange> modifiers;  // adjuncts, PPs, clauses, parentheses, adverbs, adjectives; some inside others
  std::vector<TokenRange> core;       // the other words in chunks, in order: subject, verb, complements
};

}  // namespace millrace
