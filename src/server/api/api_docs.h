// The schema for people (docs/api.md) and for programs (/openapi.json). Both are printed from the endpoints' fields.
#pragma once

#include <string>

#include "server/json.h"

namespace millrace {

std::string api_markdown();
Json openapi_json();

}  // namespace millrace
