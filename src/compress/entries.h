// The registry entries of the passes in quantizers/; passes() in builtin.cc joins them with all other entries.
#pragma once

#include <vector>

#include "compress/pass.h"

namespace millrace {

using PassEntries = std::vector<Registry<PassFactory>::Entry>;

PassEntries quantizer_entries();

// Returns the options `own` of a pass, followed by the options for rounding inputs. `inputs`, `group`, `clip`: default
// values of the latter.
std::vector<OptionSpec> with_input_options(std::vector<OptionSpec> own, const char* inputs, const char* group,
                                           const char* clip);

}  // namespace millrace
