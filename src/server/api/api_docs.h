// Generates docs/api.md and /openapi.json from the endpoints' fields.
#pragma once

#include <string>

#include "server/json.h"

namespace millrace {

std::string api_markdown();
Json openapi_json();

}  // namespace millrace
