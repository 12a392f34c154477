// The server's JSON type and serialization helpers.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/json_text.h"
#include "base/ordered_json.h"

namespace millrace {

using Json = nlohmann::ordered_json;

// One line; bytes that are not UTF-8 become U+FFFD.
inline std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Appends to_text(Json(text)), with a fast path for text that needs no escaping.
inline void append_json_text(std::string& out, std::string_view text) {
  const bool plain = std::ranges::all_of(text, [](char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; });
  if (!plain) {
    out += to_text(Json(text));
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

}  // namespace millrace
