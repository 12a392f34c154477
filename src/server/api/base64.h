// Base64 (RFC 4648, with padding).
#pragma once

#include <optional>
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

// The inverse; none if the text is not base64, or not the only text of its bytes.
inline std::optional<std::string> base64_bytes(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const auto digit = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    const size_t used = at + 4 == text.size() ? 4 - padding : 4;
    unsigned group = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int value = i < used ? digit(text[at + i]) : 0;
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<unsigned>(value);
    }
    for (size_t i = 0; i + 1 < used; ++i) out.push_back(static_cast<char>(group >> (16 - 8 * i)));
    if (used < 4 && (group & (used == 2 ? 0xffffu : 0xffu)) != 0) return std::nullopt;  // bits that no byte has
  }
  return out;
}

}  // namespace millrace
