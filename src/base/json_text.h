// JSON from outside: bounded in depth and without exceptions. nlohmann::json parses and frees without recursion, but it
// copies, compares and prints with it: what nests a hundred thousand deep ends the process when it is next touched.
// Includes nlohmann/json.hpp: for .cc files.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/ordered_json.h"

namespace millrace {

inline constexpr int64_t kMostJsonDepth = 256;
inline constexpr int64_t kMostOwnJsonDepth = 1024;  // of what was written here, around values from outside

// Whether brackets outside strings nest deeper than that. Of a text that is no JSON it may say either.
bool nests_deeper(std::string_view text, int64_t depth);

// Discarded, as nlohmann has it, where `text` is no JSON or nests deeper.
template <typename Json = nlohmann::ordered_json>
Json parse_json(std::string_view text, int64_t depth = kMostJsonDepth) {
  if (nests_deeper(text, depth)) return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace millrace
