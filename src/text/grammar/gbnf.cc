#include "text/grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "text/unicode.h"

namespace millrace {
namespace {

constexpr uint32_t kMaxRepeats = 10'000;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

// Parses rules to expression trees, so that non-recursive rules can be inlined.
class GbnfParser {
 public:
  GbnfParser(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits)
      : spec_(spec), text_(text), limits_(limits) {}

  Result<void> parse() {
    if (!is_valid_utf8(text_)) return Error::user("grammar: is not valid UTF-8");
    for (skip_space(); more(); skip_space()) {
      const std::string_view rule = name();
      skip_space();
      if (rule.empty() || !take("::=")) return bad("expected NAME ::=");
      const RuleId id = rule_id(rule);
      if (!defined_.emplace(id, true).second) return bad(fmt::format("rule '{}' is defined twice", rule));
      MILLRACE_TRY(const ExprId body, alternatives(0));
      spec_.set_body(id, body);
    }
    for (const auto& [rule, id] : rules_)
      if (!defined_.contains(id)) return Error::user(fmt::format("grammar: rule '{}' is used but not defined", rule));
    auto root = rules_.find("root");
    if (root == rules_.end()) return Error::user("grammar: there is no rule 'root'");
    spec_.root = root->second;
    return {};
  }

 private:
  Error bad(std::string_view why) const {
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(at_, text_.size())), '\n') + 1;
    return Error::user(fmt::format("grammar: {} in line {}", why, line));
  }
  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  void skip_space() {
    while (more()) {
      if (peek() == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')
        ++at_;
      else
        return;
    }
  }
  std::string_view name() {
    const size_t begin = at_;
    while (more() && is_name_char(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  RuleId rule_id(std::string_view rule) {
    auto [entry, fresh] = rules_.try_emplace(std::string(rule), -1);
    if (fresh) entry->second = spec_.add_rule(std::string(rule));
    return entry->second;
  }
  // True where the next rule begins: NAME ::=
  bool at_rule() {
    const size_t begin = at_;
    const bool is_rule = !name().empty() && (skip_space(), take("::="));
    at_ = begin;
    return is_rule;
  }

  Result<ExprId> alternatives(int64_t depth) {
    if (depth > limits_.depth) return Error::unsupported("grammar: nested too deeply");
    std::vector<ExprId> parts;
    do {
      MILLRACE_TRY(const ExprId part, sequence(depth));
      parts.push_back(part);
    } while (take("|"));
    return spec_.choice(std::move(parts));
  }

  Result<ExprId> sequence(int64_t depth) {
    std::vector<ExprId> parts;
    for (skip_space(); more() && peek() != '|' && peek() != ')' && !at_rule(); skip_space()) {
      MILLRACE_TRY_VOID(spec_.check());
      MILLRACE_TRY(ExprId part, atom(depth));
      MILLRACE_TRY(part, quantified(part));
      parts.push_back(part);
    }
    if (static_cast<int64_t>(spec_.size()) > limits_.nfa_states) return Error::unsupported("grammar: too large");
    return parts.empty() ? spec_.bytes("") : spec_.sequence(std::move(parts));
  }

  Result<ExprId> atom(int64_t depth) {
    if (peek() == '"' || peek() == '\'') return literal();
    if (peek() == '[') return bracket();
    if (take(".")) return spec_.chars(any_char(), Spelling::utf8);
    if (take("(")) {
      MILLRACE_TRY(const ExprId inside, alternatives(depth + 1));
      if (!take(")")) return bad("a ( is not closed");
      return inside;
    }
    if (peek() == '<' || peek() == '!')
      return Error::unsupported("grammar: tokens in <...> are not supported; write their text");
    const std::string_view rule = name();
    if (rule.empty()) return bad(fmt::format("unexpected '{}'", peek()));
    return spec_.call(rule_id(rule));
  }

  bool number(uint32_t* out) {
    const size_t begin = at_;
    uint64_t value = 0;
    while (more() && peek() >= '0' && peek() <= '9')
      value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(text_[at_++] - '0'), kNoLimit - 1);
    *out = static_cast<uint32_t>(value);
    return at_ > begin;
  }

  Result<ExprId> quantified(ExprId part) {
    for (;;) {
      skip_space();
      uint32_t min = 0, max = kNoLimit;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (take("{")) {
        skip_space();
        if (!number(&min)) return bad("{ needs a number");
        skip_space();
        max = min;
        if (take(",")) {
          skip_space();
          if (!number(&max)) max = kNoLimit;
          skip_space();
        }
        if (!take("}")) return bad("a { is not closed");
        if (min > max) return bad("the minimum of a repetition exceeds its maximum");
        if (min > kMaxRepeats || (max != kNoLimit && max > kMaxRepeats))
          return Error::unsupported(fmt::format("grammar: a repetition of more than {}", kMaxRepeats));
      } else {
        return part;
      }
      part = spec_.repeat(part, min, max);
      MILLRACE_TRY_VOID(spec_.check());
    }
  }

  Result<uint32_t> character() {
    if (!take("\\")) {
      const CodePoint c = decode_utf8(text_, at_);
      at_ += c.length;
      return c.value;
    }
    if (!more()) return bad("the text ends in a backslash");
    const char c = text_[at_++];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint64_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char d = peek();
      const int digit = d >= '0' && d <= '9'   ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (digit < 0) return bad("an escape needs hexadecimal digits");
      value = value * 16 + static_cast<uint64_t>(digit);
      ++at_;
    }
    if (digits > 0) {
      if (value > kLastCodePoint || (value >= 0xD800 && value < 0xE000)) return bad("the code point does not exist");
      return static_cast<uint32_t>(value);
    }
    switch (c) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case '\\':
      case '"':
      case '\'':
      case '[':
      case ']':
      case '-':
      case '^': return static_cast<uint32_t>(c);
      default: return bad(fmt::format("\\{} is not a valid escape", c));
    }
  }

  Result<ExprId> literal() {
    const char quote = text_[at_++];
    std::string text;
    while (peek() != quote) {
      if (!more()) return bad("a literal is not closed");
      MILLRACE_TRY(const uint32_t c, character());
      append_utf8(text, c);
    }
    ++at_;
    return spec_.bytes(text);
  }

  Result<ExprId> bracket() {
    ++at_;
    const bool negated = take("^");
    CharSet set;
    while (peek() != ']') {
      if (!more()) return bad("a [ is not closed");
      MILLRACE_TRY(const uint32_t first, character());
      uint32_t last = first;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        MILLRACE_TRY(last, character());
        if (last < first) return bad("the bounds of a range are in the wrong order");
      }
      set.push_back({first, last});
    }
    ++at_;
    set = normalized(std::move(set));
    return spec_.chars(negated ? complement(set) : set, Spelling::utf8);
  }

  GrammarSpec& spec_;
  std::string_view text_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
  std::map<std::string, RuleId, std::less<>> rules_;
  std::map<RuleId, bool> defined_;
};

}  // namespace

Result<void> parse_gbnf(GrammarSpec& spec, std::string_view text, const GrammarLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.source_bytes)
    return Error::unsupported(fmt::format("grammar: longer than {} bytes", limits.source_bytes));
  return GbnfParser(spec, text, limits).parse();
}

}  // namespace millrace
