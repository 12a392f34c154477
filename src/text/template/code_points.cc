#include "text/template/code_points.h"

#include <utf8proc.h>

#include <algorithm>

namespace millrace::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_stray(char32_t c) { return c >= kInvalidByte && c < kInvalidByte + 0x100; }

// Appends the mapping of one code point. The few one-to-many mappings that occur in practice are listed explicitly,
// because utf8proc maps one to one.
void append_upper(char32_t c, std::string& out) {
  switch (c) {
    case 0x00DF: out += "SS"; return;
    case 0x0149: out += "\xCA\xBCN"; return;
    case 0xFB00: out += "FF"; return;
    case 0xFB01: out += "FI"; return;
    case 0xFB02: out += "FL"; return;
    case 0xFB03: out += "FFI"; return;
    case 0xFB04: out += "FFL"; return;
    default: encode(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void append_lower(char32_t c, std::string& out) {
  if (c == 0x0130) {
    out += "i\xCC\x87";
    return;
  }
  encode(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
}

void append_title(char32_t c, std::string& out) {
  switch (c) {
    case 0x00DF: out += "Ss"; return;
    case 0xFB01: out += "Fi"; return;
    case 0xFB02: out += "Fl"; return;
    default: encode(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

template <typename Append>
void map_into(std::string_view text, std::string& out, Append append) {
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    char32_t c = decode(text, pos);
    if (is_stray(c)) {
      out.append(text.substr(start, pos - start));
    } else {
      append(c, out);
    }
  }
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT; }

size_t previous(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  size_t pos = start;
  decode(text, pos);
  return pos == end ? start : end - 1;
}

bool contains(std::string_view chars, std::string_view one) {
  for (size_t pos = 0; pos < chars.size();) {
    size_t start = pos;
    decode(chars, pos);
    if (chars.substr(start, pos - start) == one) return true;
  }
  return false;
}

}  // namespace

char32_t decode(std::string_view text, size_t& pos) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char lead = byte(pos);
  if (lead < 0x80) return text[pos++];
  int extra = lead >= 0xF0 && lead <= 0xF4 ? 3 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead >= 0xC2 && lead < 0xE0 ? 1 : 0;
  if (extra == 0 || pos + extra >= text.size()) return kInvalidByte + byte(pos++);
  char32_t c = lead & (0x3F >> extra);
  for (int i = 1; i <= extra; ++i) {
    if ((byte(pos + i) & 0xC0) != 0x80) return kInvalidByte + byte(pos++);
    c = c << 6 | (byte(pos + i) & 0x3F);
  }
  bool overlong = (extra == 2 && c < 0x800) || (extra == 3 && c < 0x10000);
  if (overlong || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return kInvalidByte + byte(pos++);
  pos += extra + 1;
  return c;
}

void encode(char32_t c, std::string& out) {
  if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
  if (c > 0x10FFFF) c = 0xFFFD;
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  size_t n = 0;
  for (size_t pos = 0; pos < text.size(); ++n) decode(text, pos);
  return n;
}

std::vector<std::string_view> split_code_points(std::string_view text) {
  std::vector<std::string_view> out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    decode(text, pos);
    out.push_back(text.substr(start, pos - start));
  }
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c >= 0x20 && c < 0x7F) return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_alpha(char32_t c) {
  auto cat = category(c);
  return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
}

bool is_word(char32_t c) {
  auto cat = category(c);
  return c == '_' || is_alpha(c) || (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  map_into(text, out, append_upper);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  map_into(text, out, append_lower);
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  size_t pos = 0;
  decode(text, pos);
  map_into(text.substr(0, pos), out, append_title);
  map_into(text.substr(pos), out, append_lower);
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  map_into(text, out, [&](char32_t c, std::string& o) {
    inside ? append_lower(c, o) : append_title(c, o);
    inside = is_cased(c);
  });
  return out;
}

std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  map_into(text, out, [&](char32_t c, std::string& o) {
    bool separator = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    begins && !separator ? append_upper(c, o) : append_lower(c, o);
    begins = separator;
  });
  return out;
}

std::string_view strip_left(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    if (!is_space(decode(text, pos))) return text.substr(start);
  }
  return {};
}

std::string_view strip_right(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = previous(text, end);
    size_t pos = start;
    if (!is_space(decode(text, pos))) break;
    end = start;
  }
  return text.substr(0, end);
}

std::string_view strip_left(std::string_view text, std::string_view chars) {
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    decode(text, pos);
    if (!contains(chars, text.substr(start, pos - start))) return text.substr(start);
  }
  return {};
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = previous(text, end);
    if (!contains(chars, text.substr(start, end - start))) break;
    end = start;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> out;
  size_t line = 0;
  for (size_t pos = 0; pos < text.size();) {
    size_t start = pos;
    char32_t c = decode(text, pos);
    bool ends = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    out.push_back(text.substr(line, (keep_ends ? pos : start) - line));
    line = pos;
  }
  if (line < text.size()) out.push_back(text.substr(line));
  return out;
}

}  // namespace millrace::jinja
