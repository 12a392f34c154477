#include "text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "text/template/code_points.h"

namespace millrace::jinja {
namespace {

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) text();
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  bool at(std::string_view s) const { return rest().substr(0, s.size()) == s; }

  [[noreturn]] void bad(const std::string& message) const { fail(fmt::format("line {}: {}", line_, message)); }

  void add(TokenType type, std::string_view t) { tokens_.push_back({type, line_, std::string(t)}); }

  void advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + pos_, source_.begin() + pos_ + n, '\n'));
    pos_ += n;
  }

  size_t space_length(size_t from) const {
    std::string_view s = std::string_view(source_).substr(from);
    return s.size() - strip_left(s).size();
  }

  // Text up to the next tag, then the tag.
  void text() {
    size_t open = pos_;
    while (true) {
      open = source_.find('{', open);
      if (open == std::string::npos) {
        emit_text(rest());
        advance(source_.size() - pos_);
        return;
      }
      char next = open + 1 < source_.size() ? source_[open + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++open;
    }
    std::string_view before = std::string_view(source_).substr(pos_, open - pos_);
    char kind = source_[open + 1];
    char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    emit_text(strip_before_tag(before, kind != '{', sign));
    advance(open - pos_);
    advance(2 + (sign ? 1 : 0));
    line_starting_ = false;
    if (kind == '#') {
      comment();
    } else if (kind == '%' && raw_begin()) {
      raw();
    } else {
      tag(kind == '%');
    }
  }

  std::string_view strip_before_tag(std::string_view before, bool lstrip, char sign) const {
    if (sign == '-') return strip_right(before);
    if (sign == '+' || !lstrip) return before;
    size_t newline = before.rfind('\n');
    size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return before;
    return strip_left(before.substr(line)).empty() ? before.substr(0, line) : before;
  }

  void emit_text(std::string_view t) {
    if (!t.empty()) add(TokenType::data, t);
  }

  // Moves past the end of a block or comment at pos_: `close` is "%}" or "#}", optionally with a sign. Returns false if
  // it is not at pos_.
  bool skip_close(std::string_view close, bool trim_newline) {
    size_t start = pos_;
    if (at("-") && rest().substr(1, 2) == close) {
      advance(3 + space_length(pos_ + 3));
    } else if (trim_newline && at("+") && rest().substr(1, 2) == close) {
      advance(3);
    } else if (at(close)) {
      advance(2);
      if (trim_newline && at("\n")) advance(1);
    } else {
      return false;
    }
    line_starting_ = pos_ > start && source_[pos_ - 1] == '\n';
    return true;
  }

  void comment() {
    while (pos_ < source_.size()) {
      size_t hash = source_.find("#}", pos_);
      if (hash == std::string::npos) break;
      if (hash > pos_ && (source_[hash - 1] == '-' || source_[hash - 1] == '+')) --hash;
      advance(hash - pos_);
      if (skip_close("#}", true)) return;
      advance(1);
    }
    bad("a comment {# is never closed with #}");
  }

  // After "{%" and its sign: consumes the raw tag if this is one.
  bool raw_begin() {
    size_t p = pos_ + space_length(pos_);
    if (std::string_view(source_).substr(p, 3) != "raw") return false;
    size_t after = p + 3;
    after += space_length(after);
    std::string_view end = std::string_view(source_).substr(after);
    bool strip = end.substr(0, 3) == "-%}";
    if (!strip && end.substr(0, 2) != "%}") return false;
    advance(after - pos_);
    return skip_close("%}", false);
  }

  void raw() {
    size_t start = pos_;
    size_t open = pos_;
    while ((open = source_.find("{%", open)) != std::string::npos) {
      size_t p = open + 2;
      char sign = p < source_.size() && (source_[p] == '-' || source_[p] == '+') ? source_[p] : '\0';
      if (sign) ++p;
      p += space_length(p);
      if (std::string_view(source_).substr(p, 6) == "endraw") {
        std::string_view body = std::string_view(source_).substr(start, open - start);
        p += 6;
        p += space_length(p);
        size_t back = pos_;
        int back_line = line_;
        std::string_view kept = strip_before_tag(body, true, sign);
        advance(p - pos_);
        if (skip_close("%}", true)) {
          if (!kept.empty()) tokens_.push_back({TokenType::data, back_line, std::string(kept)});
          return;
        }
        pos_ = back;
        line_ = back_line;
      }
      open += 2;
    }
    bad("{% raw %} is never closed with {% endraw %}");
  }

  void tag(bool block) {
    add(block ? TokenType::block_begin : TokenType::variable_begin, block ? "{%" : "{{");
    std::vector<char> open;  // unmatched open brackets
    while (true) {
      advance(space_length(pos_));
      if (pos_ >= source_.size()) bad(block ? "a tag {% is never closed with %}" : "a tag {{ is never closed with }}");
      if (open.empty()) {
        int line = line_;
        if (skip_close(block ? "%}" : "}}", block)) {
          tokens_.push_back({block ? TokenType::block_end : TokenType::variable_end, line, block ? "%}" : "}}"});
          return;
        }
      }
      token(open);
    }
  }

  void token(std::vector<char>& open) {
    char c = source_[pos_];
    if (is_digit_char(c)) return number();
    if (c == '\'' || c == '"') return string(c);
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      char32_t cp = decode(source_, next);
      if (!is_word(cp)) break;
      end = next;
    }
    if (end > pos_) {
      add(TokenType::name, std::string_view(source_).substr(pos_, end - pos_));
      advance(end - pos_);
      return;
    }
    op(c, open);
  }

  void op(char c, std::vector<char>& open) {
    static constexpr std::array<std::string_view, 6> kTwo = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view two : kTwo) {
      if (at(two)) {
        add(TokenType::op, two);
        advance(2);
        return;
      }
    }
    if (std::string_view("+-*/%~[](){}=><.:|,;").find(c) == std::string_view::npos) {
      bad(fmt::format("unexpected character '{}'", printable(c)));
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) bad(fmt::format("unexpected '{}'", c));
      if (open.back() != c) bad(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(TokenType::op, std::string_view(&c, 1));
    advance(1);
  }

  static std::string printable(char c) {
    if (c >= 0x20 && c < 0x7F) return std::string(1, c);
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }

  // digits with single underscores between them
  size_t digits(size_t p) const {
    size_t end = p;
    while (end < source_.size() &&
           (is_digit_char(source_[end]) ||
            (source_[end] == '_' && end > p && end + 1 < source_.size() && is_digit_char(source_[end + 1])))) {
      ++end;
    }
    return end;
  }

  void number() {
    bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    if (source_[pos_] == '0' && pos_ + 1 < source_.size()) {
      char base = static_cast<char>(source_[pos_ + 1] | 0x20);
      int radix = base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 0;
      if (radix && prefixed(radix)) return;
    }
    size_t end = digits(pos_);
    bool is_float = false;
    if (!after_dot) {
      size_t p = end;
      if (p + 1 < source_.size() && source_[p] == '.' && is_digit_char(source_[p + 1])) {
        p = digits(p + 1);
        end = p;
        is_float = true;
      }
      if (p < source_.size() && (source_[p] == 'e' || source_[p] == 'E')) {
        size_t e = p + 1;
        if (e < source_.size() && (source_[e] == '+' || source_[e] == '-')) ++e;
        if (e < source_.size() && is_digit_char(source_[e])) {
          end = digits(e);
          is_float = true;
        }
      }
    }
    std::string clean = source_.substr(pos_, end - pos_);
    std::erase(clean, '_');
    Token t{is_float ? TokenType::floating : TokenType::integer, line_, clean};
    if (is_float) {
      t.number = std::strtod(clean.c_str(), nullptr);
    } else {
      t.integer = integer_value(clean, 10);
    }
    tokens_.push_back(std::move(t));
    advance(end - pos_);
  }

  bool prefixed(int radix) {
    auto value = [&](char c) {
      int v = is_digit_char(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : 99;
      return v < radix;
    };
    size_t end = pos_ + 2;
    while (end < source_.size() &&
           (value(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() && value(source_[end + 1])))) {
      ++end;
    }
    if (end == pos_ + 2) return false;
    std::string clean = source_.substr(pos_ + 2, end - pos_ - 2);
    std::erase(clean, '_');
    Token t{TokenType::integer, line_, clean};
    t.integer = integer_value(clean, radix);
    tokens_.push_back(std::move(t));
    advance(end - pos_);
    return true;
  }

  Int integer_value(const std::string& text, int radix) const {
    Int v = 0;
    for (char c : text) {
      int d = is_digit_char(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (__builtin_mul_overflow(v, Int{radix}, &v) || __builtin_add_overflow(v, Int{d}, &v)) {
        bad(fmt::format("the number {} is too large", text.substr(0, 60)));
      }
    }
    return v;
  }

  void string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) bad("a string is never closed");
    std::string value = unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1));
    tokens_.push_back({TokenType::string, line_, std::move(value)});
    advance(end + 1 - pos_);
  }

  std::string unescape(std::string_view raw) const {
    std::string out;
    out.reserve(raw.size());
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      char c = raw[++i];
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': i = hex(raw, i, 2, out); break;
        case 'u': i = hex(raw, i, 4, out); break;
        case 'U': i = hex(raw, i, 8, out); break;
        case 'N': bad("\\N{...} escapes are not supported, write the character itself");
        default:
          if (c >= '0' && c <= '7') {
            char32_t v = 0;
            size_t p = i;
            while (p < raw.size() && p < i + 3 && raw[p] >= '0' && raw[p] <= '7') v = v * 8 + (raw[p++] - '0');
            encode(v, out);
            i = p - 1;
          } else {
            out += '\\';
            out += c;
          }
      }
    }
    return out;
  }

  size_t hex(std::string_view raw, size_t i, size_t length, std::string& out) const {
    char32_t v = 0;
    for (size_t k = 1; k <= length; ++k) {
      char c = i + k < raw.size() ? raw[i + k] : '\0';
      int d = is_digit_char(c) ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
      if (d < 0) bad(fmt::format("truncated \\{} escape in a string", raw[i]));
      v = v * 16 + static_cast<char32_t>(d);
    }
    if (v > 0x10FFFF) bad("illegal Unicode character in a string escape");
    encode(v, out);
    return i + length;
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace millrace::jinja
