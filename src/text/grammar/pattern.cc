#include "text/grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/unicode.h"

namespace millrace {
namespace {

const CharSet kDigits = {{'0', '9'}};
const CharSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                         {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
constexpr uint32_t kMaxPatternRepeats = 100'000;

class PatternParser {
 public:
  PatternParser(GrammarSpec& spec, std::string_view text, Spelling spelling, const GrammarLimits& limits)
      : spec_(spec), text_(text), spelling_(spelling), limits_(limits) {}

  Result<ExprId> parse() {
    if (!is_valid_utf8(text_)) return Error::user("regex: is not valid UTF-8");
    MILLRACE_TRY(const ExprId whole, alternatives(0));
    if (at_ < text_.size()) return bad("a ) has no matching (");
    return whole;
  }

 private:
  Error bad(std::string_view why) const {
    return Error::user(fmt::format("regex: {} at byte {} of '{}'", why, at_, shown()));
  }
  Error refuse(std::string_view what) const {
    return Error::unsupported(fmt::format("regex: {} are not supported, at byte {} of '{}'", what, at_, shown()));
  }
  std::string_view shown() const { return text_.substr(0, 200); }

  bool more() const { return at_ < text_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  uint32_t next_char() {
    const CodePoint c = decode_utf8(text_, at_);
    at_ += c.length;
    return c.value;
  }

  Result<ExprId> alternatives(int64_t depth) {
    if (depth > limits_.depth) return Error::unsupported("regex: nested too deeply");
    std::vector<ExprId> parts;
    do {
      MILLRACE_TRY(const ExprId part, sequence(depth));
      parts.push_back(part);
    } while (take("|"));
    return spec_.choice(std::move(parts));
  }

  Result<ExprId> sequence(int64_t depth) {
    std::vector<ExprId> parts;
    while (more() && peek() != '|' && peek() != ')') {
      bool repeatable = true;
      MILLRACE_TRY_VOID(spec_.check());
      MILLRACE_TRY(ExprId part, atom(depth, &repeatable));
      MILLRACE_TRY(part, quantified(part, repeatable));
      parts.push_back(part);
    }
    return parts.empty() ? spec_.bytes("") : spec_.sequence(std::move(parts));
  }

  Result<ExprId> atom(int64_t depth, bool* repeatable) {
    if (take("^")) return *repeatable = false, spec_.begin();
    if (take("$")) return *repeatable = false, spec_.end();
    if (take(".")) return chars(complement(kLineEnds));
    if (take("(")) return group(depth);
    if (peek() == '[') {
      MILLRACE_TRY(CharSet set, bracket());
      return chars(std::move(set));
    }
    if (peek() == '\\') {
      MILLRACE_TRY(CharSet set, escape(false));
      return chars(std::move(set));
    }
    if (peek() == '*' || peek() == '+' || peek() == '?') return bad("there is nothing to repeat");
    const uint32_t c = next_char();  // unmatched { } and ] are literal
    return chars({{c, c}});
  }

  Result<ExprId> group(int64_t depth) {
    if (take("?")) {
      if (peek() == '=' || peek() == '!') return refuse("look-aheads");
      if (peek() == '<' && (peek(1) == '=' || peek(1) == '!')) return refuse("look-behinds");
      if (take("<")) {
        const size_t end = text_.find('>', at_);
        if (end == std::string_view::npos) return bad("a group's name is not closed");
        at_ = end + 1;
      } else if (!take(":")) {
        return refuse("groups with flags");
      }
    }
    MILLRACE_TRY(const ExprId inside, alternatives(depth + 1));
    if (!take(")")) return bad("a ( is not closed");
    return inside;
  }

  bool number(uint32_t* out) {
    const size_t begin = at_;
    uint64_t value = 0;
    while (more() && peek() >= '0' && peek() <= '9')
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(text_[at_++] - '0'), kNoLimit - 1);
    *out = static_cast<uint32_t>(value);
    return at_ > begin;
  }

  Result<ExprId> quantified(ExprId part, bool repeatable) {
    uint32_t min = 0, max = kNoLimit;
    const size_t begin = at_;
    if (take("*")) {
    } else if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (take("{")) {
      bool whole = number(&min);
      max = min;
      if (whole && take(",") && !number(&max)) max = kNoLimit;
      if (!whole || !take("}")) {  // a literal brace
        at_ = begin;
        return part;
      }
    } else {
      return part;
    }
    take("?");
    if (!repeatable) return bad("^ and $ cannot be repeated");
    if (min > max) return bad("the minimum of a repetition exceeds its maximum");
    if (min > kMaxPatternRepeats || (max != kNoLimit && max > kMaxPatternRepeats))
      return Error::unsupported(
          fmt::format("regex: a repetition of more than {} in '{}'", kMaxPatternRepeats, shown()));
    if (peek() == '*' || peek() == '+' || peek() == '?') return bad("a repetition cannot be repeated");
    return spec_.repeat(part, min, max);
  }

  Result<uint32_t> hex(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return bad("an escape needs hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  Result<CharSet> unicode_escape() {
    uint32_t c = 0;
    if (take("{")) {
      while (more() && peek() != '}') {
        MILLRACE_TRY(const uint32_t digit, hex(1));
        c = std::min<uint32_t>(c * 16 + digit, kLastCodePoint + 1);
      }
      if (!take("}")) return bad("an escape is not closed");
    } else {
      MILLRACE_TRY(c, hex(4));
      if (c >= 0xD800 && c < 0xDC00 && take("\\u")) {
        MILLRACE_TRY(const uint32_t low, hex(4));
        if (low < 0xDC00 || low > 0xDFFF) return bad("the code point does not exist");
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (c > kLastCodePoint || (c >= 0xD800 && c < 0xE000)) return bad("the code point does not exist");
    return CharSet{{c, c}};
  }

  Result<CharSet> property(bool negated) {
    if (!take("{")) return bad("\\p needs a property's name in braces");
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return bad("a property's name is not closed");
    const std::string_view name = text_.substr(at_, end - at_);
    CharSet set = unicode_property(name);
    if (set.empty()) return Error::unsupported(fmt::format("regex: the Unicode property '{}' is not supported", name));
    at_ = end + 1;
    return negated ? complement(set) : set;
  }

  // The set of one escape. In brackets \b is a backspace and - may be escaped.
  Result<CharSet> escape(bool in_bracket) {
    ++at_;
    if (!more()) return bad("the text ends in a backslash");
    const uint32_t c = next_char();
    switch (c) {
      case 'd': return kDigits;
      case 'D': return complement(kDigits);
      case 'w': return kWord;
      case 'W': return complement(kWord);
      case 's': return kSpaces;
      case 'S': return complement(kSpaces);
      case 't': return CharSet{{'\t', '\t'}};
      case 'n': return CharSet{{'\n', '\n'}};
      case 'v': return CharSet{{'\v', '\v'}};
      case 'f': return CharSet{{'\f', '\f'}};
      case 'r': return CharSet{{'\r', '\r'}};
      case '0':
        if (peek() >= '0' && peek() <= '9') return bad("octal escapes are not allowed");
        return CharSet{{0, 0}};
      case 'x': {
        MILLRACE_TRY(const uint32_t value, hex(2));
        return CharSet{{value, value}};
      }
      case 'u': return unicode_escape();
      case 'p':
      case 'P': return property(c == 'P');
      case 'c': {
        const uint32_t letter = more() ? next_char() : 0;
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) return bad("\\c needs a letter");
        return CharSet{{letter % 32, letter % 32}};
      }
      case 'b':
        if (in_bracket) return CharSet{{'\b', '\b'}};
        return refuse("word boundaries");
      case 'B': return refuse("word boundaries");
      case 'k': return refuse("back references");
      default: break;
    }
    if (c >= '1' && c <= '9') return refuse("back references");
    // Other letters differ between dialects and are rejected; escaped punctuation is literal.
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      return bad(fmt::format("\\{} is not a valid escape", static_cast<char>(c)));
    return CharSet{{c, c}};
  }

  Result<CharSet> bracket() {
    ++at_;
    const bool negated = take("^");
    CharSet set;
    for (;;) {
      if (!more()) return bad("a [ is not closed");
      if (take("]")) break;
      MILLRACE_TRY(CharSet first, member());
      if (peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        const bool one = first.size() == 1 && first[0].first == first[0].last;
        ++at_;
        MILLRACE_TRY(const CharSet last, member());
        if (!one || last.size() != 1 || last[0].first != last[0].last) {  // [\w-.]: the - is literal
          set.push_back({'-', '-'});
          set.insert(set.end(), last.begin(), last.end());
        } else if (last[0].first < first[0].first) {
          return bad("the bounds of a range are in the wrong order");
        } else {
          first[0].last = last[0].last;
        }
      }
      set.insert(set.end(), first.begin(), first.end());
    }
    set = normalized(std::move(set));
    return negated ? complement(set) : set;
  }

  Result<CharSet> member() {
    if (!more()) return bad("a [ is not closed");
    if (peek() == '\\') return escape(true);
    const uint32_t c = next_char();
    return CharSet{{c, c}};
  }

  ExprId chars(CharSet set) { return spec_.chars(normalized(std::move(set)), spelling_); }

  GrammarSpec& spec_;
  std::string_view text_;
  Spelling spelling_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
};

}  // namespace

Result<ExprId> parse_pattern(GrammarSpec& spec, std::string_view pattern, Spelling spelling,
                             const GrammarLimits& limits) {
  if (static_cast<int64_t>(pattern.size()) > limits.source_bytes)
    return Error::unsupported(fmt::format("regex: longer than {} bytes", limits.source_bytes));
  return PatternParser(spec, pattern, spelling, limits).parse();
}

Result<Dfa> search_dfa(std::string_view pattern, Spelling spelling, const GrammarLimits& limits) {
  GrammarSpec spec(limits.budget);
  MILLRACE_TRY(const ExprId found, parse_pattern(spec, pattern, spelling, limits));
  const ExprId anything = spec.repeat(spec.chars(any_char(), spelling), 0, kNoLimit);
  const ExprId whole = spec.sequence({anything, found, anything});
  return make_dfa(spec, whole, limits, fmt::format("regex '{}'", pattern.substr(0, 200)));
}

}  // namespace millrace
