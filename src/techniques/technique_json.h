// A technique as JSON, for `millrace techniques --json` and GET /techniques.
#pragma once

#include "base/ordered_json.h"
#include "base/registry.h"

namespace millrace {

// Returns {family, name, summary, paper, lossless, options}. `paper` and `lossless` are null where there is none.
nlohmann::ordered_json technique_json(const TechniqueInfo& info);

}  // namespace millrace
