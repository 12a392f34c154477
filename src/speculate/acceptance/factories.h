// The factories of the built-in acceptance rules.
#pragma once

#include "sampling/chain.h"
#include "speculate/acceptance.h"

namespace millrace {

Result<std::unique_ptr<Acceptance>> make_exact_acceptance(const OptionValues& options);
Result<std::unique_ptr<Acceptance>> make_sampling_acceptance(const OptionValues& options);
Result<std::unique_ptr<Acceptance>> make_spectr_acceptance(const OptionValues& options);
Result<std::unique_ptr<Acceptance>> make_specinfer_acceptance(const OptionValues& options);
Result<std::unique_ptr<Acceptance>> make_typical_acceptance(const OptionValues& options);

}  // namespace millrace
