// The memory report in the commands' JSON output.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "millrace/engine.h"

namespace millrace {

// {"budget_bytes", "accounts": {NAME: {"bytes", "peak"}}, "bytes": their sum, "peak_resident_bytes": from the system}
nlohmann::ordered_json memory_json(int64_t budget, std::span<const MemoryUse> uses);

}  // namespace millrace
