// UTF-8 decoding, character classes for pre-tokenizers, GPT-2's byte-to-unicode spelling and normalization forms.
// Stateless; tables are compile-time constants or those of utf8proc. Invalid bytes are not an error: each counts as one
// character of class kOther.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

// Bits of char_class_of(). A code point has exactly one of the letter, mark, number, punctuation and symbol bits or
// kOther. kSpace (White_Space) and kNewline (CR, LF) are set in addition.
enum CharClass : uint16_t {
  kUpper = 1 << 0,     // Lu, Lt
  kLower = 1 << 1,     // Ll
  kCaseless = 1 << 2,  // Lm, Lo
  kMark = 1 << 3,      // Mn, Mc, Me
  kNumber = 1 << 4,    // Nd, Nl, No
  kPunct = 1 << 5,     // P*
  kSymbol = 1 << 6,    // S*
  kSpace = 1 << 7,
  kNewline = 1 << 8,
  kOther = 1 << 9,  // controls, unassigned, separators, invalid bytes
  kLetter = kUpper | kLower | kCaseless,
};

struct CodePoint {
  uint32_t value;   // U+FFFD when invalid
  uint32_t length;  // bytes, 1..4; 1 when invalid
  bool valid;
};

// Decodes the character at text[pos]; pos < text.size(). Overlong forms, surrogates and values above U+10FFFF are
// invalid.
CodePoint decode_utf8(std::string_view text, size_t pos);

// Returns the length of the incomplete but so far well-formed character at the end of `text`, 0 to 3 bytes.
size_t incomplete_utf8_suffix(std::string_view text);

void append_utf8(std::string& out, uint32_t code_point);
bool is_valid_utf8(std::string_view text);

uint16_t char_class_of(uint32_t code_point);  // any code point
inline constexpr std::array<uint16_t, 128> kAsciiClass = [] {
  std::array<uint16_t, 128> table{};
  for (uint32_t c = 0; c < 128; ++c) {
    uint16_t bits = kPunct;
    if (c >= 'A' && c <= 'Z')
      bits = kUpper;
    else if (c >= 'a' && c <= 'z')
      bits = kLower;
    else if (c >= '0' && c <= '9')
      bits = kNumber;
    else if (c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '`' || c == '|' || c == '~')
      bits = kSymbol;
    else if (c < 0x20 || c == 0x7F || c == ' ')
      bits = kOther;
    if (c == ' ' || (c >= 9 && c <= 13)) bits |= kSpace;
    if (c == '\r' || c == '\n') bits |= kNewline;
    table[c] = bits;
  }
  return table;
}();

// Class and length of the character at text[pos].
struct CharAt {
  uint16_t bits;
  uint32_t length;
};
CharAt char_at_slow(std::string_view text, size_t pos);
inline CharAt char_at(std::string_view text, size_t pos) {
  const auto byte = static_cast<uint8_t>(text[pos]);
  if (byte < 0x80) return {kAsciiClass[byte], 1};
  return char_at_slow(text, pos);
}

// GPT-2's spelling of raw bytes as printable code points (space -> U+0120 ...). It never changes, because vocabularies
// depend on it.
uint32_t byte_to_code_point(uint8_t byte);
// Returns -1 if the code point does not spell a byte.
int code_point_to_byte(uint32_t code_point);
std::string spell_bytes(std::string_view bytes);
// Appends the bytes that `spelled` spells. Returns false and appends nothing if it has a character outside the
// spelling.
bool append_unspelled(std::string_view spelled, std::string& out);

enum class NormalForm { nfc, nfkc, nfd, nfkd };
// Normalizes the text; invalid bytes are copied unchanged. Takes linear time, except n log n for a run of n combining
// marks.
std::string normalize_unicode(std::string_view text, NormalForm form);
uint32_t to_lower(uint32_t code_point);
bool is_nonspacing_mark(uint32_t code_point);  // Mn

}  // namespace millrace
