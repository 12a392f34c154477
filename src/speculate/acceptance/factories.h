// The factories of the built-in acceptance rules.
#pragma once

#include "speculate/acceptance.h"

namespace millrace {

Result<std::unique_ptr<Acceptance>> make_exact_acceptance(const OptionValues& options);

}  // namespace millrace
