// Marks figures that a suite cannot show. A lossy technique in a part where a suite does not look leaves its values as
// those of the base; without a mark it would appear to cost nothing. Pure functions.
#pragma once

#include <string>

#include "compare/suite.h"

namespace millrace {

// The lossy choices of `config` that cannot change the values of a suite with this sight, each with the reason and a
// way to see it, joined by "; ". Returns "" if there are none.
std::string unseen_of(const SuiteSight& sight, const CompareConfig& config);

}  // namespace millrace
