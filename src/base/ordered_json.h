// nlohmann::ordered_json, compiled once (ordered_json.cc) and not by every file that uses it: that costs a compilation
// a second or two.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<nlohmann::ordered_map>;
