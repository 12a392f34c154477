// Base64 (RFC 4648, with padding).
#pragma once

#include <string>
#include <string_view>

namespace millrace {

inline std::string base64_text(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    unsigned group = 0;
    for (size_t i = 0; i < 3; ++i)
      group = group << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0u);
    for (size_t i = 0; i < 4; ++i) out.push_back(i <= bytes.size() - at ? kDigits[group >> (18 - 6 * i) & 63] : '=');
  }
  return out;
}

}  // namespace millrace
