#include "text/grammar/lark.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace millrace {
namespace {

constexpr size_t kMaxRegex = 64 << 10;  // every use of a rule repeats its text
constexpr int kMaxLarkDepth = 64;
constexpr size_t kMaxRules = 1000;
constexpr int64_t kMaxLarkRepeats = 1000;

// Lark's own "common" terminals.
const std::map<std::string_view, std::string_view>& common_terminals() {
  static const std::map<std::string_view, std::string_view> all = {
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9a-fA-F]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
      {"FLOAT", "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
      {"NUMBER", "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"SIGNED_NUMBER", "[+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
      {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[a-zA-Z]"},
      {"WORD", "[a-zA-Z]+"},
      {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
      {"WS_INLINE", "[ \\t]+"},
      {"WS", "[ \\t\\f\\r\\n]+"},
      {"CR", "\\r"},
      {"LF", "\\n"},
      {"NEWLINE", "(?:\\r?\\n)+"}};
  return all;
}

bool is_rule_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string literal(std::string_view text, bool any_case) {
  std::string out;
  for (const char c : text) {
    if (any_case && is_letter(c)) {
      out += {'[', static_cast<char>(c | 0x20), static_cast<char>(c & ~0x20), ']'};
      continue;
    }
    if (std::string_view("\\^$.|?*+()[]{}/-").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

class Translator {
 public:
  Result<std::string> translate(std::string_view grammar) {
    MILLRACE_TRY_VOID(split(grammar));
    if (!rules_.contains("start")) return Error::user("the grammar has no rule 'start'");
    return rule("start", 0);
  }

 private:
  struct Rule {
    std::string body;
    std::string regex;  // set once translated
    bool open = false;  // being translated
  };

  // Splits lines into rules. A line that starts with white space or '|' continues the rule before it.
  Result<void> split(std::string_view grammar) {
    std::string* body = nullptr;
    for (size_t number = 1; !grammar.empty(); ++number) {
      const size_t end = grammar.find('\n');
      std::string_view line = grammar.substr(0, end);
      grammar.remove_prefix(end == std::string_view::npos ? grammar.size() : end + 1);
      const size_t first = line.find_first_not_of(" \t\r");
      if (first == std::string_view::npos) continue;
      std::string_view text = line.substr(first);
      while (text.ends_with('\r') || text.ends_with(' ')) text.remove_suffix(1);
      if (text.starts_with("//") || text.starts_with('#')) continue;
      if (text.starts_with('%')) {
        MILLRACE_TRY_VOID(directive(text, number));
        body = nullptr;
        continue;
      }
      if (body && (first > 0 || text.starts_with('|'))) {
        body->append("\n").append(text);
        continue;
      }
      MILLRACE_TRY(body, begin_rule(text, number));
    }
    return {};
  }

  Result<std::string*> begin_rule(std::string_view text, size_t number) {
    while (text.starts_with('?') || text.starts_with('!')) text.remove_prefix(1);
    size_t end = 0;
    while (end < text.size() && is_rule_name_char(text[end])) ++end;
    const std::string name(text.substr(0, end));
    std::string_view rest = text.substr(end);
    if (rest.starts_with('{')) return Error::user(fmt::format("line {}: rule templates are not supported", number));
    if (rest.starts_with('.'))
      rest.remove_prefix(std::min(rest.find(':'), rest.size()));  // a priority, which matters only for parsing
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
    if (name.empty() || !rest.starts_with(':'))
      return Error::user(fmt::format("line {}: expected a rule, 'name: ...'", number));
    if (rules_.size() >= kMaxRules) return Error::user(fmt::format("the grammar has more than {} rules", kMaxRules));
    if (rules_.contains(name)) return Error::user(fmt::format("line {}: rule '{}' is defined twice", number, name));
    Rule& rule = rules_[name];
    rule.body = std::string(rest.substr(1));
    return &rule.body;
  }

  // %import common.INT, or common (INT, WS), or with -> and another name.
  Result<void> directive(std::string_view text, size_t number) {
    constexpr std::string_view kImport = "%import common";
    if (!text.starts_with(kImport))
      return Error::user(fmt::format("line {}: '{}' is not supported; only terminals of common can be imported", number,
                                     text.substr(0, 60)));
    text.remove_prefix(kImport.size());
    std::vector<std::string> names(1);
    bool renamed = false;
    for (const char c : text) {
      if (is_rule_name_char(c))
        names.back() += c;
      else if (!names.back().empty())
        names.emplace_back();
      renamed |= c == '>';
    }
    if (names.back().empty()) names.pop_back();
    if (names.empty() || (renamed && names.size() != 2))
      return Error::user(fmt::format("line {}: must import terminals by name", number));
    for (size_t i = 0; i < (renamed ? 1 : names.size()); ++i) {
      const auto found = common_terminals().find(names[i]);
      if (found == common_terminals().end())
        return Error::user(
            fmt::format("line {}: terminal '{}' of common is not supported", number, names[i].substr(0, 60)));
      rules_[renamed ? names[1] : names[i]].regex = fmt::format("(?:{})", found->second);
    }
    return {};
  }

  Result<std::string> rule(const std::string& name, int depth) {
    const auto found = rules_.find(name);
    if (found == rules_.end()) return Error::user(fmt::format("there is no rule '{}'", name.substr(0, 60)));
    Rule& rule = found->second;
    if (rule.open)
      return Error::user(
          fmt::format("rule '{}' refers to itself; recursive grammars are not supported", name.substr(0, 60)));
    if (!rule.regex.empty()) return rule.regex;
    rule.open = true;
    const std::string_view text = std::exchange(text_, rule.body);
    const size_t at = std::exchange(at_, 0);
    auto made = alternatives(depth + 1);
    if (made.ok() && at_ < text_.size()) made = bad("cannot be parsed");
    text_ = text;
    at_ = at;
    rule.open = false;
    if (made.ok()) rule.regex = *made;
    return made;
  }

  Error bad(std::string_view why) const {
    return Error::user(fmt::format("'{}' {}", text_.substr(std::min(at_, text_.size()), 40), why));
  }
  // White space and comments.
  void skip() {
    for (;;) {
      at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
      if (text_.substr(at_, 2) != "//") return;
      at_ = std::min(text_.find('\n', at_), text_.size());
    }
  }
  bool take(std::string_view what) {
    skip();
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }

  Result<std::string> alternatives(int depth) {
    if (depth > kMaxLarkDepth) return Error::user("the grammar is nested too deeply");
    std::string out = "(?:";
    do {
      for (;;) {
        skip();
        if (at_ >= text_.size() || std::string_view("|)]").find(text_[at_]) != std::string_view::npos) break;
        if (take("->")) {  // an alias, which matters only for parsing
          skip();
          while (at_ < text_.size() && is_rule_name_char(text_[at_])) ++at_;
          continue;
        }
        MILLRACE_TRY(const std::string part, repeated(depth));
        out += part;
        if (out.size() > kMaxRegex)
          return Error::user(fmt::format("the grammar expands to a regex of more than {} bytes", kMaxRegex));
      }
      out += '|';
    } while (take("|"));
    out.back() = ')';
    return out;
  }

  Result<std::string> repeated(int depth) {
    MILLRACE_TRY(std::string part, item(depth));
    if (at_ < text_.size() && std::string_view("?*+").find(text_[at_]) != std::string_view::npos)
      return "(?:" + part + ")" + text_[at_++];
    if (!take("~")) return part;
    MILLRACE_TRY(const int64_t least, number());
    int64_t most = least;
    if (take("..")) {
      MILLRACE_TRY(most, number());
    }
    if (least > most) return bad("has its bounds in the wrong order");
    return fmt::format("(?:{}){{{},{}}}", part, least, most);
  }

  Result<int64_t> number() {
    skip();
    int64_t value = -1;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')
      value = std::min<int64_t>(std::max<int64_t>(value, 0) * 10 + (text_[at_++] - '0'), kMaxLarkRepeats + 1);
    if (value < 0 || value > kMaxLarkRepeats) return bad(fmt::format("must be a number up to {}", kMaxLarkRepeats));
    return value;
  }

  Result<std::string> item(int depth) {
    skip();
    const char c = text_[at_];
    if (c == '(' || c == '[') {
      ++at_;
      MILLRACE_TRY(const std::string inside, alternatives(depth + 1));
      if (!take(c == '(' ? ")" : "]")) return bad("is not closed");
      return c == '(' ? inside : "(?:" + inside + ")?";
    }
    if (c == '"') return text_or_range();
    if (c == '/') return regex();
    size_t end = at_;
    while (end < text_.size() && is_rule_name_char(text_[end])) ++end;
    if (end == at_) return bad("cannot be parsed");
    const std::string name(text_.substr(at_, end - at_));
    at_ = end;
    if (at_ < text_.size() && text_[at_] == '{') return bad("uses a rule template, which is not supported");
    return rule(name, depth);
  }

  Result<std::string> quoted() {
    std::string out;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (c == 'n')
          c = '\n';
        else if (c == 't')
          c = '\t';
        else if (c == 'r')
          c = '\r';
        else if (c == 'f')
          c = '\f';
        else if (is_rule_name_char(c))
          return bad("starts with an escape that is not supported");
      }
      out += c;
    }
    if (at_ >= text_.size()) return Error::user("a quoted string is not terminated");
    ++at_;
    return out;
  }

  // "text", "text"i, or "a".."z".
  Result<std::string> text_or_range() {
    MILLRACE_TRY(const std::string text, quoted());
    if (at_ < text_.size() && text_[at_] == 'i') return ++at_, literal(text, true);
    if (text_.substr(at_, 2) != "..") return literal(text, false);
    at_ += 2;
    if (at_ >= text_.size() || text_[at_] != '"') return bad("must be the last character of a range");
    MILLRACE_TRY(const std::string last, quoted());
    if (text.size() != 1 || last.size() != 1 || last < text)
      return Error::user("a range must go from one ASCII character to a later one");
    return fmt::format("[{}-{}]", literal(text, false), literal(last, false));
  }

  Result<std::string> regex() {
    const size_t begin = ++at_;
    bool in_set = false;
    for (; at_ < text_.size() && (in_set || text_[at_] != '/'); ++at_) {
      if (text_[at_] == '\\')
        ++at_;
      else if (text_[at_] == '[')
        in_set = true;
      else if (text_[at_] == ']')
        in_set = false;
    }
    if (at_ >= text_.size()) return Error::user("a regex is not terminated");
    const std::string out = fmt::format("(?:{})", text_.substr(begin, at_++ - begin));
    if (at_ < text_.size() && is_letter(text_[at_])) return bad("is a regex flag; flags are not supported");
    return out;
  }

  std::map<std::string, Rule> rules_;
  std::string_view text_;  // of the current rule
  size_t at_ = 0;
};

}  // namespace

Result<std::string> lark_to_regex(std::string_view grammar) { return Translator().translate(grammar); }

}  // namespace millrace
