// CharSet: a set of Unicode code points as sorted ranges, and its UTF-8 encodings. Grammars are written for characters
// but run on bytes, because a token may end in the middle of a character.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct CharRange {
  uint32_t first = 0, last = 0;  // inclusive
};
using CharSet = std::vector<CharRange>;  // ascending, disjoint, not adjacent, no surrogates

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

CharSet normalized(CharSet ranges);
CharSet complement(const CharSet& set);
CharSet intersection(const CharSet& a, const CharSet& b);
CharSet any_char();

// The UTF-8 encodings of a range as sequences of byte ranges. Any choice of one byte from each range of a sequence
// encodes one character of the range.
//   U+00E9..U+0900  ->  C3..C3 A9..BF,  C4..DF 80..BF,  E0 A0..A3 80..BF,  E0 A4 80
struct ByteSequence {
  std::array<uint8_t, 4> first{}, last{};
  int length = 0;
};
void for_each_utf8(CharRange range, const std::function<void(const ByteSequence&)>& visit);

// Returns the code points with the Unicode property of \p{NAME}; empty if the name is unknown. Only general categories
// are supported, by their short and long names.
CharSet unicode_property(std::string_view name);

}  // namespace millrace
