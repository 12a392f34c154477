// Hand-written scanners for the published split patterns of tokenizers. Each scanner matches the regex in its comment
// at a position, without a regex engine. Tests compare each scanner with PCRE2. Scanners take time linear in the length
// of the text, because none looks back further than it advances.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace millrace {

// Returns the end of the match that begins at text[pos], or `pos` if there is none. pos < text.size().
using Scanner = size_t (*)(std::string_view text, size_t pos);

// DeepSeek LLM lists its cased letters range by range.
inline constexpr std::string_view kDeepseekLettersRegex =
    R"re(\s?[\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\)re"
    R"re(x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38)re"
    R"re(C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A)re"
    R"re(0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1)re"
    R"re(D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x)re"
    R"re({1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x)re"
    R"re({1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC})re"
    R"re(\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\)re"
    R"re(x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}-\x{2184}\x{2C00}-\x{2C7B})re"
    R"re(\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76)re"
    R"re(F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{F)re"
    R"re(F3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{)re"
    R"re(10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)re";

struct KnownPattern {
  std::string_view regex;
  Scanner scan;
  bool only_at_end = false;  // the pattern matches only at the end; search backwards to avoid quadratic time
};

// Returns all patterns that have a scanner. Several spellings of one pattern share a scanner.
std::span<const KnownPattern> known_patterns();
const KnownPattern* find_known_pattern(std::string_view regex);  // null: use Regex

// A scanner that splits at runs of white space, for text on which an untrusted pattern reached its limits.
size_t scan_whitespace_words(std::string_view text, size_t pos);

}  // namespace millrace
