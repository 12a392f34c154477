// The one table of what cannot be combined. Engines, simulations, scorers and requests collect the facts of everything
// that takes part (collect.h) and call resolve() before they take memory; there are no other checks of pairs.
// docs/compatibility.md is generated from this table.
#pragma once

#include <span>

#include "base/result.h"
#include "run/compatibility/facts.h"

namespace millrace {

struct Rule {
  const Fact* a;
  const Fact* b;
  const char* why;
  const char* advice;
};

// In the order in which they are applied: a message is of the first rule that is broken.
std::span<const Rule> compatibility_rules();

// Errors (unsupported): "A does not go with B: why; advice".
Result<void> resolve(const Facts& facts);

}  // namespace millrace
