// Parses untrusted JSON without exceptions and with bounded depth. nlohmann::json parses and destroys without
// recursion, but copies, compares and prints recursively: JSON nested a hundred thousand levels deep would overflow the
// stack later. Includes nlohmann/json.hpp, so include it only in .cc files.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ordered_json.h"

namespace millrace {

inline constexpr int64_t kMaxJsonDepth = 256;
inline constexpr int64_t kMaxOwnJsonDepth = 1024;  // for JSON written by millrace itself around outside values

// Returns true if brackets outside strings nest deeper than `depth`. For invalid JSON the result is unspecified.
bool nests_deeper(std::string_view text, int64_t depth);

// Returns nlohmann's discarded value if `text` is invalid or nests deeper than `depth`.
template <typename Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, int64_t depth = kMaxJsonDepth) {
  if (nests_deeper(text, depth)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}
extern template nlohmann::ordered_json parse_json(std::string_view text, int64_t depth);  // compiled once
extern template nlohmann::json parse_json(std::string_view text, int64_t depth);

}  // namespace millrace
