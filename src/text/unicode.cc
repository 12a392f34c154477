#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/work_limits.h"
#include "text/work_count.h"

namespace millrace {

CodePoint decode_utf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(pos);
  const CodePoint bad{0xFFFD, 1, false};
  if (first < 0x80) return {first, 1, true};
  if (first < 0xC2 || first > 0xF4) return bad;
  const uint32_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() - pos < length) return bad;
  uint32_t value = first & (0x7Fu >> length);
  for (uint32_t i = 1; i < length; ++i) {
    if ((byte(pos + i) & 0xC0) != 0x80) return bad;
    value = value << 6 | (byte(pos + i) & 0x3F);
  }
  if (length == 3 && (value < 0x800 || (value >= 0xD800 && value <= 0xDFFF))) return bad;
  if (length == 4 && (value < 0x10000 || value > 0x10FFFF)) return bad;
  return {value, length, true};
}

size_t incomplete_utf8_suffix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t pos = text.size() - back;
    const auto lead = static_cast<uint8_t>(text[pos]);
    if ((lead & 0xC0) == 0x80) continue;  // a continuation byte: look further left
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (back >= length) return 0;
    // The second byte alone can already rule the character out (overlong, surrogate, too large).
    if (back >= 2) {
      const auto second = static_cast<uint8_t>(text[pos + 1]);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
          (lead == 0xF4 && second > 0x8F)) {
        return 0;
      }
    }
    return back;
  }
  return 0;
}

void append_utf8(std::string& out, uint32_t cp) {
  if (cp < 0x80) {
    out += static_cast<char>(cp);
  } else if (cp < 0x800) {
    out += static_cast<char>(0xC0 | cp >> 6);
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else if (cp < 0x10000) {
    out += static_cast<char>(0xE0 | cp >> 12);
    out += static_cast<char>(0x80 | (cp >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | cp >> 18);
    out += static_cast<char>(0x80 | (cp >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (cp >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (cp & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint cp = decode_utf8(text, pos);
    if (!cp.valid) return false;
    pos += cp.length;
  }
  return true;
}

uint16_t char_class_of(uint32_t cp) {
  if (cp < 128) return kAsciiClass[cp];
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(cp))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kUpper;
    case UTF8PROC_CATEGORY_LL: return kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunct;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return kOther | kSpace;
    default: return cp == 0x85 ? kOther | kSpace : kOther;
  }
}

CharAt char_at_slow(std::string_view text, size_t pos) {
  const CodePoint cp = decode_utf8(text, pos);
  if (!cp.valid) return {kOther, 1};
  return {char_class_of(cp.value), cp.length};
}

namespace {

struct ByteSpelling {
  std::array<uint32_t, 256> code_point{};
  std::array<int16_t, 0x144> byte{};  // the spelling ends below U+0144
};

// Printable Latin-1 bytes map to themselves; the 68 others map to U+0100 and up, in byte order.
constexpr ByteSpelling kSpelling = [] {
  ByteSpelling s;
  for (auto& b : s.byte) b = -1;
  uint32_t next = 0x100;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    s.code_point[b] = printable ? b : next++;
    s.byte[s.code_point[b]] = static_cast<int16_t>(b);
  }
  return s;
}();

}  // namespace

uint32_t byte_to_code_point(uint8_t byte) { return kSpelling.code_point[byte]; }

int code_point_to_byte(uint32_t cp) { return cp < kSpelling.byte.size() ? kSpelling.byte[cp] : -1; }

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (char c : bytes) append_utf8(out, byte_to_code_point(static_cast<uint8_t>(c)));
  return out;
}

bool append_unspelled(std::string_view spelled, std::string& out) {
  const size_t before = out.size();
  for (size_t pos = 0; pos < spelled.size();) {
    const auto first = static_cast<uint8_t>(spelled[pos]);
    const CodePoint cp = first < 0x80 ? CodePoint{first, 1, true} : decode_utf8(spelled, pos);
    const int byte = cp.valid ? code_point_to_byte(cp.value) : -1;
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
    pos += cp.length;
  }
  return true;
}

namespace {

constexpr size_t kPieceBytes = 1 << 14;  // normalized at once, or up to the next ASCII character

utf8proc_propval_t combining_class(utf8proc_int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

// Appends the decomposition of valid UTF-8.
void decompose(std::string_view text, utf8proc_option_t options, std::vector<utf8proc_int32_t>& out) {
  int boundary = 0;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint cp = decode_utf8(text, pos);
    pos += cp.length;
    utf8proc_int32_t parts[64];
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(cp.value), parts, std::size(parts), options, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(std::size(parts)))
      out.push_back(static_cast<utf8proc_int32_t>(cp.value));
    else
      out.insert(out.end(), parts, parts + count);
  }
}

// Unicode's canonical ordering: sorts each run of combining marks by class. utf8proc's own sort takes quadratic time.
void order_marks(std::vector<utf8proc_int32_t>& text) {
  const auto is_mark = [](utf8proc_int32_t cp) { return combining_class(cp) != 0; };
  for (auto at = text.begin(); (at = std::find_if(at, text.end(), is_mark)) != text.end();) {
    const auto end = std::find_if_not(at, text.end(), is_mark);
    const auto before = [](auto a, auto b) { return combining_class(a) < combining_class(b); };
    if (!std::is_sorted(at, end, before)) std::stable_sort(at, end, before);
    at = end;
  }
}

}  // namespace

std::string normalize_unicode(std::string_view text, NormalForm form) {
  bool ascii = true;
  for (char c : text) ascii &= static_cast<uint8_t>(c) < 0x80;
  if (ascii) return std::string(text);
  int bits = UTF8PROC_STABLE;
  bits |= form == NormalForm::nfd || form == NormalForm::nfkd ? UTF8PROC_DECOMPOSE : UTF8PROC_COMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) bits |= UTF8PROC_COMPAT;
  const auto options = static_cast<utf8proc_option_t>(bits);
  std::string out;
  out.reserve(text.size());
  std::vector<utf8proc_int32_t> points;
  for (size_t pos = 0; pos < text.size();) {
    // An ASCII character neither moves nor composes with what is before it: pieces may begin there.
    size_t end = pos;
    while (end < text.size() && (end - pos < kPieceBytes || static_cast<uint8_t>(text[end]) >= 0x80)) {
      const CodePoint cp = decode_utf8(text, end);
      if (!cp.valid) break;
      end += cp.length;
    }
    if (end == pos) {
      out += text[pos++];
      continue;
    }
    if (work_is_over()) break;
    points.clear();
    decompose(text.substr(pos, end - pos), options, points);
    text_work += static_cast<int64_t>(points.size());
    order_marks(points);
    const auto size = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), options);
    for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<uint32_t>(points[static_cast<size_t>(i)]));
    pos = end;
  }
  return out;
}

uint32_t to_lower(uint32_t cp) {
  if (cp < 128) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(cp)));
}

bool is_nonspacing_mark(uint32_t cp) {
  return cp >= 128 && utf8proc_category(static_cast<utf8proc_int32_t>(cp)) == UTF8PROC_CATEGORY_MN;
}

}  // namespace millrace
