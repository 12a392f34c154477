#include "text/grammar/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

constexpr CharRange kSurrogates{0xD800, 0xDFFF};

// Bytes of one character, most significant first; returns the length.
int encode(uint32_t c, std::array<uint8_t, 4>& out) {
  if (c < 0x80) return out[0] = static_cast<uint8_t>(c), 1;
  const int length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = length - 1; i > 0; --i, c >>= 6) out[static_cast<size_t>(i)] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  out[0] = static_cast<uint8_t>((length == 2 ? 0xC0 : length == 3 ? 0xE0 : 0xF0) | c);
  return length;
}

// `range` has one encoded length and no surrogates. Splits until all bytes after a common prefix span 80..BF.
void split(CharRange range, int length, const std::function<void(const ByteSequence&)>& visit) {
  for (int i = 1; i < length; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((range.first & ~mask) == (range.last & ~mask)) continue;
    if ((range.first & mask) != 0) {
      split({range.first, range.first | mask}, length, visit);
      split({(range.first | mask) + 1, range.last}, length, visit);
      return;
    }
    if ((range.last & mask) != mask) {
      split({range.first, (range.last & ~mask) - 1}, length, visit);
      split({range.last & ~mask, range.last}, length, visit);
      return;
    }
  }
  ByteSequence sequence;
  sequence.length = encode(range.first, sequence.first);
  encode(range.last, sequence.last);
  visit(sequence);
}

struct Category {
  std::string_view name, long_name;
  uint32_t bits;
};

constexpr uint32_t bit(utf8proc_category_t category) { return 1u << category; }
constexpr uint32_t kCased = bit(UTF8PROC_CATEGORY_LU) | bit(UTF8PROC_CATEGORY_LL) | bit(UTF8PROC_CATEGORY_LT);
constexpr uint32_t kLetters = kCased | bit(UTF8PROC_CATEGORY_LM) | bit(UTF8PROC_CATEGORY_LO);
constexpr uint32_t kMarks = bit(UTF8PROC_CATEGORY_MN) | bit(UTF8PROC_CATEGORY_MC) | bit(UTF8PROC_CATEGORY_ME);
constexpr uint32_t kNumbers = bit(UTF8PROC_CATEGORY_ND) | bit(UTF8PROC_CATEGORY_NL) | bit(UTF8PROC_CATEGORY_NO);
constexpr uint32_t kPunctuation = bit(UTF8PROC_CATEGORY_PC) | bit(UTF8PROC_CATEGORY_PD) | bit(UTF8PROC_CATEGORY_PS) |
                                  bit(UTF8PROC_CATEGORY_PE) | bit(UTF8PROC_CATEGORY_PI) | bit(UTF8PROC_CATEGORY_PF) |
                                  bit(UTF8PROC_CATEGORY_PO);
constexpr uint32_t kSymbols =
    bit(UTF8PROC_CATEGORY_SM) | bit(UTF8PROC_CATEGORY_SC) | bit(UTF8PROC_CATEGORY_SK) | bit(UTF8PROC_CATEGORY_SO);
constexpr uint32_t kSeparators = bit(UTF8PROC_CATEGORY_ZS) | bit(UTF8PROC_CATEGORY_ZL) | bit(UTF8PROC_CATEGORY_ZP);

constexpr Category kCategories[] = {
    {"L", "Letter", kLetters},
    {"LC", "Cased_Letter", kCased},
    {"Lu", "Uppercase_Letter", bit(UTF8PROC_CATEGORY_LU)},
    {"Ll", "Lowercase_Letter", bit(UTF8PROC_CATEGORY_LL)},
    {"Lt", "Titlecase_Letter", bit(UTF8PROC_CATEGORY_LT)},
    {"Lm", "Modifier_Letter", bit(UTF8PROC_CATEGORY_LM)},
    {"Lo", "Other_Letter", bit(UTF8PROC_CATEGORY_LO)},
    {"M", "Mark", kMarks},
    {"Mn", "Nonspacing_Mark", bit(UTF8PROC_CATEGORY_MN)},
    {"N", "Number", kNumbers},
    {"Nd", "Decimal_Number", bit(UTF8PROC_CATEGORY_ND)},
    {"Nd", "digit", bit(UTF8PROC_CATEGORY_ND)},
    {"P", "Punctuation", kPunctuation},
    {"Pd", "Dash_Punctuation", bit(UTF8PROC_CATEGORY_PD)},
    {"S", "Symbol", kSymbols},
    {"Sc", "Currency_Symbol", bit(UTF8PROC_CATEGORY_SC)},
    {"Z", "Separator", kSeparators},
    {"Zs", "Space_Separator", bit(UTF8PROC_CATEGORY_ZS)},
};

}  // namespace

CharSet normalized(CharSet ranges) {
  CharSet whole;
  for (CharRange r : ranges) {
    r.last = std::min(r.last, kLastCodePoint);
    if (r.first > r.last) continue;
    if (r.last < kSurrogates.first || r.first > kSurrogates.last) {
      whole.push_back(r);
      continue;
    }
    if (r.first < kSurrogates.first) whole.push_back({r.first, kSurrogates.first - 1});
    if (r.last > kSurrogates.last) whole.push_back({kSurrogates.last + 1, r.last});
  }
  std::sort(whole.begin(), whole.end(), [](CharRange a, CharRange b) { return a.first < b.first; });
  CharSet out;
  for (CharRange r : whole) {
    if (!out.empty() && r.first <= out.back().last + 1)
      out.back().last = std::max(out.back().last, r.last);
    else
      out.push_back(r);
  }
  return out;
}

CharSet complement(const CharSet& set) {
  CharSet out;
  uint32_t next = 0;
  for (CharRange r : set) {
    if (r.first > next) out.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) out.push_back({next, kLastCodePoint});
  return normalized(std::move(out));
}

CharSet intersection(const CharSet& a, const CharSet& b) {
  CharSet out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const uint32_t first = std::max(a[i].first, b[j].first), last = std::min(a[i].last, b[j].last);
    if (first <= last) out.push_back({first, last});
    (a[i].last < b[j].last ? i : j)++;
  }
  return out;
}

CharSet any_char() { return normalized({{0, kLastCodePoint}}); }

void for_each_utf8(CharRange range, const std::function<void(const ByteSequence&)>& visit) {
  constexpr uint32_t kEnds[] = {0x7F, 0x7FF, 0xFFFF, kLastCodePoint};
  for (CharRange part : normalized({range})) {
    for (int length = 1; length <= 4 && part.first <= part.last; ++length) {
      const uint32_t end = kEnds[length - 1];
      if (part.first > end) continue;
      split({part.first, std::min(part.last, end)}, length, visit);
      part.first = end + 1;
    }
  }
}

CharSet unicode_property(std::string_view name) {
  for (std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  uint32_t wanted = 0;
  for (const Category& category : kCategories)
    if (name == category.name || name == category.long_name) wanted = category.bits;
  CharSet out;
  if (wanted == 0) return out;
  for (uint32_t c = 0; c <= kLastCodePoint; ++c) {
    if ((wanted & bit(utf8proc_category(static_cast<utf8proc_int32_t>(c)))) == 0) continue;
    if (!out.empty() && out.back().last + 1 == c)
      out.back().last = c;
    else
      out.push_back({c, c});
  }
  return normalized(std::move(out));
}

}  // namespace millrace
