// The option values of a technique as JSON: every option of the schema with its value, including defaults.
#pragma once

#include <vector>

#include "base/options.h"
#include "base/ordered_json.h"

namespace millrace {

nlohmann::ordered_json option_json(const OptionSpec& spec, const OptionValues& values);
nlohmann::ordered_json options_json(const std::vector<OptionSpec>& schema, const OptionValues& values);

}  // namespace millrace
