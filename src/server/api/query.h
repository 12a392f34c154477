// Parses URL query strings: "a=1&b=x%20y".
#pragma once

#include <string>
#include <string_view>

#include "server/http/http.h"

namespace millrace {

// The decoded value of `name`; "" if it is absent or malformed.
inline std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view one = query.substr(0, end);
    query.remove_prefix(end == std::string_view::npos ? query.size() : end + 1);
    const size_t equals = one.find('=');
    if (one.substr(0, equals) != name || equals == std::string_view::npos) continue;
    return percent_decoded(one.substr(equals + 1)).value_or("");
  }
  return "";
}

}  // namespace millrace
