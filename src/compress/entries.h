// The entries of quantizers/ in the registry of passes, which passes() in builtin.cc puts together with all others.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

using PassEntries = std::vector<Registry<PassFactory>::Entry>;

PassEntries quantizer_entries();

// Returns `own`, the options of a pass, followed by the options of how inputs are rounded. `inputs`, `group` and `clip`
// are the defaults of these.
std::vector<OptionSpec> with_input_options(std::vector<OptionSpec> own, const char* inputs, const char* group,
                                           const char* clip);

}  // namespace millrace
