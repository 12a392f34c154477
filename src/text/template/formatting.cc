// '%' formatting and str.format, as far as text templates use them: only one level of nested fields in a spec, such as
// !r:>{width}, and no locale.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"
#include "text/template/text_search.h"

namespace millrace::jinja {
namespace {

constexpr Int kMaxWidth = 1 << 20;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  char group = 0;
  int width = 0;
  int precision = -1;
  char type = 0;
};

// Reads digits at `pos`; fails if the width is too large.
std::optional<int> read_number(std::string_view text, size_t& pos) {
  size_t start = pos;
  Int v = 0;
  while (pos < text.size() && text[pos] >= '0' && text[pos] <= '9') {
    v = v * 10 + (text[pos++] - '0');
    if (v > kMaxWidth) fail_resource("a format width is too large");
  }
  if (pos == start) return std::nullopt;
  return static_cast<int>(v);
}

std::string pad(std::string_view text, const Spec& spec, char default_align) {
  size_t length = count_code_points(text);
  auto width = static_cast<size_t>(spec.width);
  if (length >= width) return std::string(text);
  size_t missing = width - length;
  char align = spec.align ? spec.align : default_align;
  size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (size_t i = 0; i < left; ++i) before += spec.fill;
  for (size_t i = left; i < missing; ++i) after += spec.fill;
  if (align == '=') {  // after the sign and the prefix
    size_t head = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    if (text.size() > head + 1 && text[head] == '0' &&
        std::string_view("xXob").find(text[head + 1]) != std::string_view::npos) {
      head += 2;
    }
    return std::string(text.substr(0, head)) + before + std::string(text.substr(head));
  }
  return before + std::string(text) + after;
}

std::string group_digits(std::string number, char separator) {
  size_t end = 0;
  while (end < number.size() && number[end] >= '0' && number[end] <= '9') ++end;
  for (size_t i = end; i > 3; i -= 3) number.insert(i - 3, 1, separator);
  return number;
}

std::string in_base(Int v, char type) {
  unsigned base = type == 'o' ? 8 : type == 'b' ? 2 : 16;
  auto u = static_cast<unsigned __int128>(v < 0 ? -(v + 1) : v) + (v < 0 ? 1 : 0);
  const char* digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    auto digit = static_cast<unsigned>(u % base);
    out += digits[digit];
    u /= base;
  } while (u != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string with_sign(std::string magnitude, bool negative, char sign) {
  if (negative) return "-" + magnitude;
  if (sign == '+' || sign == ' ') return sign + magnitude;
  return magnitude;
}

std::string format_float(double v, char type, int precision, bool alternate) {
  if (std::isnan(v) || std::isinf(v)) {
    bool upper = type == 'F' || type == 'E' || type == 'G';
    return std::isnan(v) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  if (precision > 2000) fail_resource("a format precision is too large");
  char pattern[8] = {'%', alternate ? '#' : '.', 0};
  std::snprintf(pattern, sizeof pattern, alternate ? "%%#.*%c" : "%%.*%c", type);
  int n = std::snprintf(nullptr, 0, pattern, precision, v);
  std::string out(static_cast<size_t>(n) + 1, '\0');
  std::snprintf(out.data(), out.size(), pattern, precision, v);
  out.pop_back();
  return out;
}

std::string format_integer(Int v, const Spec& spec) {
  bool negative = v < 0;
  std::string digits;
  char type = spec.type ? spec.type : 'd';
  if (type == 'x' || type == 'X' || type == 'o' || type == 'b') {
    digits = in_base(v, type);
    if (spec.alternate) digits = std::string("0") + type + digits;
  } else {
    digits = to_string(v);
    if (negative) digits.erase(0, 1);
  }
  if (spec.group) digits = group_digits(digits, spec.group);
  return pad(with_sign(digits, negative, spec.sign), spec, '>');
}

std::string format_real(double v, const Spec& spec) {
  bool negative = std::signbit(v) && !std::isnan(v);
  double magnitude = std::fabs(v);
  std::string digits;
  if (spec.type == '%') {
    digits = format_float(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
  } else if (spec.type == 0 && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else {
    char type = spec.type == 0 || spec.type == 'n' ? 'g' : spec.type;
    int precision = spec.precision < 0 ? 6 : spec.precision;
    digits = format_float(magnitude, type, type == 'g' && precision == 0 ? 1 : precision, spec.alternate);
  }
  if (spec.group) digits = group_digits(digits, spec.group);
  return pad(with_sign(digits, negative, spec.sign), spec, '>');
}

Spec parse_spec(std::string_view text) {
  Spec s;
  size_t pos = 0;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    size_t after = 0;
    decode(text, after);
    if (after < text.size() && is_align(text[after])) {
      s.fill = text.substr(0, after);
      s.align = text[after];
      pos = after + 1;
    } else if (is_align(text[0])) {
      s.align = text[0];
      pos = 1;
    }
  }
  auto skip = [&](char c) { return pos < text.size() && text[pos] == c && ++pos; };
  if (pos < text.size() && (text[pos] == '+' || text[pos] == '-' || text[pos] == ' ')) s.sign = text[pos++];
  s.alternate = skip('#');
  if (skip('0') && !s.align) {
    s.fill = "0";
    s.align = '=';
  }
  s.width = read_number(text, pos).value_or(0);
  if (skip(','))
    s.group = ',';
  else if (skip('_'))
    s.group = '_';
  if (skip('.')) {
    auto precision = read_number(text, pos);
    if (!precision) fail("Format specifier missing precision");
    s.precision = *precision;
  }
  if (pos < text.size()) s.type = text[pos++];
  if (pos != text.size()) fail("Invalid format specifier");
  return s;
}

// One conversion of '%' formatting.
std::string percent_one(Runtime& rt, char type, Spec spec, const Value& v) {
  switch (type) {
    case 's':
    case 'r':
    case 'a': {
      std::string text = type == 's' ? str(rt, v) : repr(rt, v);
      if (spec.precision >= 0) {
        auto letters = split_code_points(text);
        size_t bytes = 0;
        for (size_t i = 0; i < letters.size() && i < static_cast<size_t>(spec.precision); ++i)
          bytes += letters[i].size();
        text.resize(bytes);
      }
      return pad(text, spec, '>');
    }
    case 'c':
      if (v.is_string() && count_code_points(v.text()) == 1) return pad(v.text(), spec, '>');
      if (v.is_integral() && v.as_int() >= 0 && v.as_int() < 0x110000) {
        std::string out;
        encode(static_cast<char32_t>(v.as_int()), out);
        return pad(out, spec, '>');
      }
      fail("%c requires int or char");
    case 'd':
    case 'i':
    case 'u':
      if (!v.is_number()) fail(fmt::format("%{} format: a real number is required, not {}", type, type_name(v)));
      if (v.is(Kind::floating) && !(std::fabs(v.as_double()) < 1e38)) fail("cannot convert float to integer");
      spec.type = 'd';
      return format_integer(v.is_integral() ? v.as_int() : static_cast<Int>(v.as_double()), spec);
    case 'x':
    case 'X':
    case 'o':
      if (!v.is_integral()) fail(fmt::format("%{} format: an integer is required, not {}", type, type_name(v)));
      spec.type = type;
      return format_integer(v.as_int(), spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!v.is_number()) fail(fmt::format("must be real number, not {}", type_name(v)));
      spec.type = type;
      return format_real(v.as_double(), spec);
    default: fail(fmt::format("unsupported format character '{}'", type >= 0x20 && type < 0x7F ? type : '?'));
  }
}

class PercentFormatter {
 public:
  PercentFormatter(Runtime& rt, std::string_view format, const Value& args) : rt_(rt), format_(format), args_(args) {
    is_tuple_ = args.is_sequence() && args.sequence().type == SequenceType::tuple;
  }

  std::string run() {
    std::string out;
    rt_.budget.spend_bytes(format_.size());
    while (pos_ < format_.size()) {
      char c = format_[pos_++];
      if (c != '%') {
        out += c;
        continue;
      }
      field(out);
      rt_.budget.spend_bytes(16);
      rt_.budget.check_string(out.size());
    }
    bool leftover = is_tuple_ ? used_ < args_.sequence().items.size() : used_ == 0 && !args_.is_dict() && !mapped_;
    if (leftover) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  Value next() {
    if (is_tuple_ ? used_ >= args_.sequence().items.size() : used_ > 0) fail("not enough arguments for format string");
    ++used_;
    return is_tuple_ ? args_.sequence().items[used_ - 1] : args_;
  }

  int star() {
    Value v = next();
    if (!v.is_integral()) fail("* wants int");
    if (v.as_int() > kMaxWidth || v.as_int() < -kMaxWidth) fail_resource("a format width is too large");
    return static_cast<int>(v.as_int());
  }

  void field(std::string& out) {
    Value mapped = Value::absent();
    if (pos_ < format_.size() && format_[pos_] == '(') {
      size_t close = format_.find(')', pos_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!args_.is_dict()) fail("format requires a mapping");
      std::string key(format_.substr(pos_ + 1, close - pos_ - 1));
      const Value* found = args_.dict().find(key, rt_.budget);
      if (!found) fail(quote(key));
      mapped = *found;
      mapped_ = true;
      pos_ = close + 1;
    }
    Spec spec;
    bool zero = false, left = false;
    for (; pos_ < format_.size(); ++pos_) {
      char f = format_[pos_];
      if (f == '-')
        left = true;
      else if (f == '0')
        zero = true;
      else if (f == '+')
        spec.sign = '+';
      else if (f == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (f == '#')
        spec.alternate = true;
      else
        break;
    }
    if (pos_ < format_.size() && format_[pos_] == '*') {
      ++pos_;
      spec.width = star();
      left = left || spec.width < 0;
      spec.width = std::abs(spec.width);
    } else {
      spec.width = read_number(format_, pos_).value_or(0);
    }
    if (pos_ < format_.size() && format_[pos_] == '.') {
      ++pos_;
      if (pos_ < format_.size() && format_[pos_] == '*') {
        ++pos_;
        spec.precision = std::max(0, star());
      } else {
        spec.precision = read_number(format_, pos_).value_or(0);
      }
    }
    while (pos_ < format_.size() && (format_[pos_] == 'l' || format_[pos_] == 'h' || format_[pos_] == 'L')) ++pos_;
    if (pos_ >= format_.size()) fail("incomplete format");
    char type = format_[pos_++];
    if (type == '%') {
      out += '%';
      return;
    }
    bool numeric = type != 's' && type != 'r' && type != 'a' && type != 'c';
    rt_.budget.spend_bytes(static_cast<size_t>(spec.width) + static_cast<size_t>(std::max(spec.precision, 0)));
    if (left)
      spec.align = '<';
    else if (zero && numeric) {
      spec.align = '=';
      spec.fill = "0";
    }
    out += percent_one(rt_, type, spec, mapped.is_absent() ? next() : mapped);
  }

  Runtime& rt_;
  std::string_view format_;
  const Value& args_;
  bool is_tuple_ = false;
  bool mapped_ = false;
  size_t used_ = 0;
  size_t pos_ = 0;
};

class BraceFormatter {
 public:
  BraceFormatter(Runtime& rt, Args& args) : rt_(rt), args_(args) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    rt_.budget.spend_bytes(format.size());
    for (size_t i = 0; i < format.size();) {
      char c = format[i++];
      if (c == '{' && i < format.size() && format[i] == '{') {
        out += '{';
        ++i;
      } else if (c == '}') {
        if (i >= format.size() || format[i] != '}') fail("Single '}' encountered in format string");
        out += '}';
        ++i;
      } else if (c == '{') {
        size_t end = closing(format, i);
        out += field(format.substr(i, end - i), depth);
        i = end + 1;
      } else {
        out += c;
      }
      rt_.budget.check_string(out.size());
    }
    return out;
  }

 private:
  static size_t closing(std::string_view format, size_t i) {
    int level = 1;
    for (; i < format.size(); ++i) {
      if (format[i] == '{') ++level;
      if (format[i] == '}' && --level == 0) return i;
    }
    fail("Single '{' encountered in format string");
  }

  std::string field(std::string_view text, int depth) {
    rt_.budget.spend(1);
    size_t end = text.find_first_of("!:");
    // A [key] may contain either character.
    size_t open = text.find('[');
    if (open != std::string_view::npos && open < end) {
      size_t close = text.find(']', open);
      if (close != std::string_view::npos) end = text.find_first_of("!:", close);
    }
    std::string_view name = text.substr(0, end);
    std::string_view tail = end == std::string_view::npos ? std::string_view() : text.substr(end);
    Value v = lookup(name);
    if (!tail.empty() && tail[0] == '!') {
      if (tail.size() < 2 || (tail.size() > 2 && tail[2] != ':')) fail("expected ':' after conversion specifier");
      if (tail[1] == 's')
        v = rt_.string(str(rt_, v));
      else if (tail[1] == 'r' || tail[1] == 'a')
        v = rt_.string(repr(rt_, v));
      else
        fail("Unknown conversion specifier");
      tail.remove_prefix(2);
    }
    std::string spec = tail.empty() ? std::string() : run(tail.substr(1), depth + 1);
    return format_value(rt_, v, spec);
  }

  Value lookup(std::string_view name) {
    size_t end = std::min(name.find('.'), name.find('['));
    std::string first(name.substr(0, end));
    Value v = first_value(first);
    while (end < name.size()) {
      if (name[end] == '.') {
        size_t next = std::min({name.find('.', end + 1), name.find('[', end + 1), name.size()});
        v = rt_.attribute(v, name.substr(end + 1, next - end - 1));
        end = next;
      } else {
        size_t close = name.find(']', end);
        if (close == std::string_view::npos) fail("Missing ']' in format string");
        std::string key(name.substr(end + 1, close - end - 1));
        size_t pos = 0;
        auto index = read_number(key, pos);
        bool number = index && pos == key.size();
        v = rt_.item(v, number ? Value::integer(*index) : rt_.string(key));
        end = close + 1;
        if (end < name.size() && name[end] != '.' && name[end] != '[')
          fail("Only '.' or '[' may follow ']' in format field");
      }
      if (v.is_undefined()) fail(v.undefined_message());
    }
    return v;
  }

  Value first_value(const std::string& name) {
    size_t pos = 0;
    auto number = read_number(name, pos);
    if (name.empty() || (number && pos == name.size())) {
      if (name.empty() ? manual_ : automatic_) {
        fail("cannot switch between manual field specification and automatic field numbering");
      }
      (name.empty() ? automatic_ : manual_) = true;
      size_t i = name.empty() ? next_++ : static_cast<size_t>(*number);
      if (i >= args_.positional.size()) {
        fail(fmt::format("Replacement index {} out of range for positional args tuple", i));
      }
      return args_.positional[i];
    }
    rt_.budget.spend(static_cast<int64_t>(args_.named.size() / 8));
    for (const auto& [key, value] : args_.named) {
      if (equal_texts(key, name, rt_.budget)) return value;
    }
    fail(quote(name));
  }

  Runtime& rt_;
  Args& args_;
  size_t next_ = 0;
  bool manual_ = false, automatic_ = false;
};

}  // namespace

std::string format_value(Runtime& rt, const Value& v, std::string_view text) {
  if (text.empty()) return str(rt, v);
  Spec spec = parse_spec(text);
  rt.budget.spend_bytes(static_cast<size_t>(spec.width));
  if (v.is_string()) {
    if ((spec.type && spec.type != 's') || spec.align == '=') {
      if (spec.align == '=' && spec.fill == "0")
        spec.align = '<';
      else
        fail("Unknown format code for object of type 'str'");
    }
    return percent_one(
        rt, 's',
        [&] {
          if (!spec.align) spec.align = '<';
          return spec;
        }(),
        v);
  }
  std::string_view floats = "eEfFgG%n";
  std::string_view integers = "dxXobn";
  if (v.is(Kind::floating) ||
      (v.is_integral() && spec.type && spec.type != 'n' && floats.find(spec.type) != std::string_view::npos)) {
    if (spec.type && floats.find(spec.type) == std::string_view::npos) {
      fail("Unknown format code for object of type 'float'");
    }
    return format_real(v.as_double(), spec);
  }
  if (v.is_integral()) {
    if (spec.type == 'c') return percent_one(rt, 'c', spec, v);
    if (spec.type && integers.find(spec.type) == std::string_view::npos) {
      fail("Unknown format code for object of type 'int'");
    }
    if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
    return format_integer(v.as_int(), spec);
  }
  fail(fmt::format("unsupported format string passed to {}.__format__", type_name(v)));
}

std::string percent_format(Runtime& rt, std::string_view format, const Value& args) {
  return PercentFormatter(rt, format, args).run();
}

std::string brace_format(Runtime& rt, std::string_view format, Args& args) {
  return BraceFormatter(rt, args).run(format, 0);
}

}  // namespace millrace::jinja
