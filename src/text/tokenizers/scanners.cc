#include "text/tokenizers/scanners.h"

#include <algorithm>
#include <iterator>

#include "text/unicode.h"

namespace millrace {
namespace {

// Advances over characters of the given classes.
size_t run_of(std::string_view text, size_t pos, uint16_t classes) {
  while (pos < text.size()) {
    const CharAt at = char_at(text, pos);
    if ((at.bits & classes) == 0) break;
    pos += at.length;
  }
  return pos;
}

size_t run_without(std::string_view text, size_t pos, uint16_t classes) {
  while (pos < text.size()) {
    const CharAt at = char_at(text, pos);
    if ((at.bits & classes) != 0) break;
    pos += at.length;
  }
  return pos;
}

size_t up_to(std::string_view text, size_t pos, uint16_t classes, int most) {
  for (int i = 0; i < most && pos < text.size(); ++i) {
    const CharAt at = char_at(text, pos);
    if ((at.bits & classes) == 0) break;
    pos += at.length;
  }
  return pos;
}

bool has(std::string_view text, size_t pos, uint16_t classes) {
  return pos < text.size() && (char_at(text, pos).bits & classes) != 0;
}

// '(?:s|t|re|ve|m|ll|d), with the case folded for ASCII ([sS]...) or as (?i:...), where U+017F counts as an s.
enum class Fold { none, ascii, unicode };
size_t contraction(std::string_view text, size_t pos, Fold fold) {
  if (text[pos] != '\'' || pos + 1 >= text.size()) return pos;
  const auto lower = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return fold != Fold::none && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = lower(pos + 1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return pos + 2;
  const char b = lower(pos + 2);
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return pos + 3;
  if (fold == Fold::unicode && a == '\xC5' && b == '\xBF') return pos + 3;
  return pos;
}

// \s+(?!\S)|\s+  at white space that ends at run_end.
size_t space_run(std::string_view text, size_t pos, size_t run_end) {
  if (run_end == text.size()) return run_end;
  size_t last = run_end - 1;  // start of the run's last character, which belongs to the next word
  while (last > pos && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
  return last > pos ? last : run_end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t newlines_or_space_run(std::string_view text, size_t pos) {
  const size_t run_end = run_of(text, pos, kSpace);
  for (size_t i = run_end; i > pos; --i) {
    if (text[i - 1] == '\n' || text[i - 1] == '\r') return i;
  }
  return space_run(text, pos, run_end);
}

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t scan_gpt2(std::string_view text, size_t pos) {
  if (const size_t end = contraction(text, pos, Fold::none); end > pos) return end;
  const size_t word = text[pos] == ' ' && pos + 1 < text.size() ? pos + 1 : pos;
  const uint16_t bits = char_at(text, word).bits;
  if (bits & kLetter) return run_of(text, word, kLetter);
  if (bits & kNumber) return run_of(text, word, kNumber);
  if (!(bits & kSpace)) return run_without(text, word, kSpace | kLetter | kNumber);
  return space_run(text, pos, run_of(text, pos, kSpace));
}

// cl100k, Llama 3, Qwen 2 ...:
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,D}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
// Letters: \p{L}, or [\p{L}\p{M}] in both places for Qwen 3.5.
template <int kDigits, uint16_t kLetters, Fold kFold = Fold::unicode>
size_t scan_cl100k(std::string_view text, size_t pos) {
  if (const size_t end = contraction(text, pos, kFold); end > pos) return end;
  const CharAt first = char_at(text, pos);
  if (first.bits & kLetters) return run_of(text, pos, kLetters);
  const size_t second = pos + first.length;
  if (!(first.bits & (kNewline | kNumber)) && has(text, second, kLetters)) return run_of(text, second, kLetters);
  if (first.bits & kNumber) return up_to(text, pos, kNumber, kDigits);
  constexpr uint16_t kNotSymbol = kSpace | kLetters | kNumber;
  const size_t symbols = text[pos] == ' ' ? second : pos;
  if (symbols < text.size() && !(char_at(text, symbols).bits & kNotSymbol)) {
    return run_of(text, run_without(text, symbols, kNotSymbol), kNewline);
  }
  return newlines_or_space_run(text, pos);
}

// U*W+ and U+W* of the o200k family, U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], W = [\p{Ll}\p{Lm}\p{Lo}\p{M}].
constexpr uint16_t kUpperish = kUpper | kCaseless | kMark;
constexpr uint16_t kLowerish = kLower | kCaseless | kMark;

size_t upper_then_lower(std::string_view text, size_t pos) {
  size_t end = pos;
  size_t last_shared = pos;  // end of the last character in both classes: backtracking stops here
  while (end < text.size()) {
    const CharAt at = char_at(text, end);
    if (!(at.bits & kUpperish)) break;
    end += at.length;
    if (at.bits & kLowerish) last_shared = end;
  }
  if (has(text, end, kLowerish)) return run_of(text, end, kLowerish);
  return last_shared;
}

size_t uppers(std::string_view text, size_t pos) {
  const size_t end = run_of(text, pos, kUpperish);
  return end > pos ? run_of(text, end, kLowerish) : pos;
}

// o200k: [^\r\n\p{L}\p{N}]?U*W+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?U+W*(?i:'s|...)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*
//        |\s*[\r\n]+|\s+(?!\S)|\s+          Tekken: without the contractions, \p{N} one by one.
template <int kDigits, bool kContractions>
size_t scan_o200k(std::string_view text, size_t pos) {
  const CharAt first = char_at(text, pos);
  const size_t second = pos + first.length;
  const bool prefix = !(first.bits & (kNewline | kLetter | kNumber)) && second < text.size();
  size_t end = pos;
  if (prefix) end = std::max(pos, upper_then_lower(text, second) > second ? upper_then_lower(text, second) : pos);
  if (end == pos) end = upper_then_lower(text, pos);
  if (end == pos && prefix && uppers(text, second) > second) end = uppers(text, second);
  if (end == pos) end = uppers(text, pos);
  if (end > pos) return kContractions && end < text.size() ? contraction(text, end, Fold::unicode) : end;
  if (first.bits & kNumber) return up_to(text, pos, kNumber, kDigits);
  constexpr uint16_t kNotSymbol = kSpace | kLetter | kNumber;
  const size_t symbols = text[pos] == ' ' ? second : pos;
  if (symbols < text.size() && !(char_at(text, symbols).bits & kNotSymbol)) {
    end = run_without(text, symbols, kNotSymbol);
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n' || text[end] == '/')) ++end;
    return end;
  }
  return newlines_or_space_run(text, pos);
}

bool ascii_punct(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}
bool ascii_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// DeepSeek-V3's third pattern: [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+
// | ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t scan_deepseek_v3(std::string_view text, size_t pos) {
  if (ascii_punct(text[pos]) && pos + 1 < text.size() && ascii_letter(text[pos + 1])) {
    size_t end = pos + 1;
    while (end < text.size() && ascii_letter(text[end])) ++end;
    return end;
  }
  constexpr uint16_t kWord = kLetter | kMark;
  const CharAt first = char_at(text, pos);
  const size_t second = pos + first.length;
  const bool prefix = !(first.bits & (kNewline | kLetter | kPunct | kSymbol));
  if (prefix && has(text, second, kWord)) return run_of(text, second, kWord);
  if (first.bits & kWord) return run_of(text, pos, kWord);
  const size_t symbols = text[pos] == ' ' ? second : pos;
  if (has(text, symbols, kPunct | kSymbol)) return run_of(text, run_of(text, symbols, kPunct | kSymbol), kNewline);
  if (first.bits & kSpace) return newlines_or_space_run(text, pos);
  return pos;  // control characters and digits match nothing
}

template <uint16_t kClasses>
size_t scan_run(std::string_view text, size_t pos) {
  return run_of(text, pos, kClasses);
}
template <uint16_t kClasses, int kMax>
size_t scan_up_to(std::string_view text, size_t pos) {
  return up_to(text, pos, kClasses, kMax);
}

// \s?[class]+
template <uint16_t kClasses>
size_t scan_spaced_run(std::string_view text, size_t pos) {
  const CharAt first = char_at(text, pos);
  const size_t start = first.bits & kSpace ? pos + first.length : pos;
  const size_t end = run_of(text, start, kClasses);
  return end > start ? end : pos;
}

// \s+$
size_t scan_trailing_space(std::string_view text, size_t pos) {
  const size_t end = run_of(text, pos, kSpace);
  return end == text.size() ? end : pos;
}

struct Range {
  uint32_t first, last;
};

template <size_t kSize>
bool in_ranges(const Range (&ranges)[kSize], uint32_t cp) {
  const Range* next =
      std::upper_bound(ranges, ranges + kSize, cp, [](uint32_t v, const Range& r) { return v < r.first; });
  return next != ranges && cp <= (next - 1)->last;
}

template <typename InClass>
size_t run_where(std::string_view text, size_t pos, InClass in_class) {
  while (pos < text.size()) {
    const CodePoint cp = decode_utf8(text, pos);
    if (!cp.valid || !in_class(cp.value)) break;
    pos += cp.length;
  }
  return pos;
}

// [一-龥ࠀ-一가-퟿]+ of DeepSeek LLM / Coder
size_t scan_deepseek_cjk(std::string_view text, size_t pos) {
  return run_where(text, pos, [](uint32_t c) { return (c >= 0x800 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7FF); });
}
// [一-龥぀-ゟ゠-ヿ]+ of DeepSeek V3
size_t scan_deepseek_v3_cjk(std::string_view text, size_t pos) {
  return run_where(text, pos, [](uint32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); });
}

// The cased letters that DeepSeek LLM's pattern lists one range at a time.
constexpr Range kDeepseekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

size_t after_optional_space(std::string_view text, size_t pos) {
  const CharAt first = char_at(text, pos);
  return first.bits & kSpace ? pos + first.length : pos;
}

size_t scan_deepseek_letters(std::string_view text, size_t pos) {
  const size_t start = after_optional_space(text, pos);
  const size_t end = run_where(text, start, [](uint32_t c) { return in_ranges(kDeepseekLetters, c); });
  return end > start ? end : pos;
}

// \s?[!-/:-~！-／：-～‘-‟　-。]+ ; U+3000 is white space too, so it may match as the class alone.
size_t scan_deepseek_punct(std::string_view text, size_t pos) {
  const auto in_class = [](uint32_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '~') || (c >= 0xFF01 && c <= 0xFF0F) ||
           (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) || (c >= 0x3000 && c <= 0x3002);
  };
  const size_t start = after_optional_space(text, pos);
  const size_t end = run_where(text, start, in_class);
  return end > start ? end : run_where(text, pos, in_class);
}

// [\p{P}\$\+<=>\^~\|`]+ ; GGUF's "default" omits the backtick.
template <bool kBacktick>
size_t scan_punctuation(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const CharAt at = char_at(text, pos);
    const bool ascii_symbol = at.length == 1 && (at.bits & kSymbol) && (kBacktick || text[pos] != '`');
    if (!(at.bits & kPunct) && !ascii_symbol) break;
    pos += at.length;
  }
  return pos;
}

// [0-9][0-9][0-9]
size_t scan_three_digits(std::string_view text, size_t pos) {
  if (text.size() - pos < 3) return pos;
  for (size_t i = pos; i < pos + 3; ++i) {
    if (text[i] < '0' || text[i] > '9') return pos;
  }
  return pos + 3;
}

// ' ?[^(\s|.,!?…。，、।۔،)]+' of BLOOM
size_t scan_bloom(std::string_view text, size_t pos) {
  const size_t start = text[pos] == ' ' ? pos + 1 : pos;
  const size_t end = run_where(text, start, [](uint32_t c) {
    if (char_class_of(c) & kSpace) return false;
    switch (c) {
      case '(':
      case '|':
      case '.':
      case ',':
      case '!':
      case '?':
      case ')':
      case 0x2026:
      case 0x3002:
      case 0xFF0C:
      case 0x3001:
      case 0x964:
      case 0x6D4:
      case 0x60C: return false;
      default: return true;
    }
  });
  return end > start ? end : pos;
}

// [^\n]+|[\n]+
size_t scan_lines(std::string_view text, size_t pos) {
  const bool newline = text[pos] == '\n';
  while (pos < text.size() && (text[pos] == '\n') == newline) ++pos;
  return pos;
}

size_t scan_all(std::string_view text, size_t) { return text.size(); }

constexpr Scanner kCl100k = scan_cl100k<3, kLetter>;
constexpr Scanner kQwen2 = scan_cl100k<1, kLetter>;

constexpr KnownPattern kKnown[] = {
#include "text/tokenizers/known_patterns.inc"
};

}  // namespace

std::span<const KnownPattern> known_patterns() { return kKnown; }

const KnownPattern* find_known_pattern(std::string_view regex) {
  for (const KnownPattern& known : kKnown) {
    if (known.regex == regex) return &known;
  }
  return nullptr;
}

size_t scan_whitespace_words(std::string_view text, size_t pos) {
  const size_t word = run_of(text, pos, kSpace);
  return run_without(text, word, kSpace);
}

}  // namespace millrace
