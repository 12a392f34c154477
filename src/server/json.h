// JSON as the server reads and writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace millrace {

using Json = nlohmann::ordered_json;

// One line; bytes that are not UTF-8 become U+FFFD.
inline std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace millrace
