// Finds losses that a suite cannot show. If a lossy technique is in a part that a suite's values do not depend on, the
// values equal those of the base. Without a mark, the technique would appear to cost nothing. Pure functions.
#pragma once

#include <string>

#include "compare/suite.h"

namespace millrace {

// Returns the lossy choices of `config` that cannot change the values of a suite with this sight, joined by "; ". Each
// has the reason and names a suite that shows the loss. Returns "" if there are none.
std::string unseen_of(const SuiteSight& sight, const CompareConfig& config);

}  // namespace millrace
