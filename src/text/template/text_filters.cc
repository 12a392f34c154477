// Filters on text. Other values are converted first, as by str().
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

using Bound = std::span<const Value>;

// Converts the value to a string value; strings are returned unchanged.
Value soft(Runtime& rt, const Value& v) { return v.is_string() ? v : rt.string(str(rt, v)); }

// Runs a method of str on the value's text.
Value method(Runtime& rt, const char* name, const Value& v, std::vector<Value> arguments = {}) {
  Value text = soft(rt, v);
  Args args;
  for (Value& a : arguments) {
    if (!a.is_absent()) args.positional.push_back(std::move(a));
  }
  return call_native(rt, *find_method(text, name), text, args);
}

Value upper(Runtime& rt, const Value& v, Bound) { return method(rt, "upper", v); }
Value lower(Runtime& rt, const Value& v, Bound) { return method(rt, "lower", v); }
Value capitalize_filter(Runtime& rt, const Value& v, Bound) { return method(rt, "capitalize", v); }
Value trim(Runtime& rt, const Value& v, Bound a) { return method(rt, "strip", v, {a[0]}); }
Value string_filter(Runtime& rt, const Value& v, Bound) { return soft(rt, v); }

Value center(Runtime& rt, const Value& v, Bound a) {
  return method(rt, "center", v, {a[0].is_absent() ? Value::integer(80) : a[0]});
}

Value title_filter(Runtime& rt, const Value& v, Bound) {
  Value text = soft(rt, v);
  rt.budget.spend(static_cast<int64_t>(text.text().size() / 4));
  return rt.string(title_words(text.text()));
}

Value replace(Runtime& rt, const Value& v, Bound a) {
  Value count = a[2].is_none() ? Value::absent() : a[2];
  return method(rt, "replace", v, {soft(rt, a[0]), soft(rt, a[1]), count});
}

Value indent(Runtime& rt, const Value& v, Bound a) {
  if (v.is_undefined()) fail(v.undefined_message());
  std::string_view text = text_arg(v, "indent");
  std::string blank;
  if (a[0].is_string()) {
    blank = a[0].text();
  } else {
    Int width = int_arg(a[0], "indent", 4);
    if (width > 1 << 16) fail_resource("indent: the width is too large");
    blank = std::string(static_cast<size_t>(std::max<Int>(width, 0)), ' ');
  }
  bool first = bool_arg(a[1], false), blank_lines = bool_arg(a[2], false);
  rt.budget.spend_bytes(text.size());
  std::string whole = std::string(text) + "\n";  // preserves a trailing newline
  std::string out = first ? blank : "";
  bool begun = false;
  for (std::string_view line : split_lines(whole, false)) {
    if (begun) {
      rt.write("\n", out);
      if (blank_lines || !line.empty()) rt.write(blank, out);
    }
    begun = true;
    rt.write(line, out);
  }
  return rt.string(std::move(out));
}

Value escape_text(Runtime& rt, std::string_view text) {
  std::string out;
  rt.budget.spend_bytes(text.size() * 4);
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return rt.string(std::move(out), true);
}

Value escape(Runtime& rt, const Value& v, Bound) {
  if (v.is_string() && v.string()->markup) return v;
  return escape_text(rt, soft(rt, v).text());
}
Value force_escape(Runtime& rt, const Value& v, Bound) { return escape_text(rt, soft(rt, v).text()); }
Value safe(Runtime& rt, const Value& v, Bound) {
  if (v.is_string()) rt.budget.spend_bytes(v.text().size());
  return rt.string(str(rt, v), true);
}

Value striptags(Runtime& rt, const Value& v, Bound) {
  Value soft_value = soft(rt, v);
  std::string_view text = soft_value.text();
  rt.budget.spend_bytes(text.size());
  std::string plain;
  bool tags_close = true, comments_close = true;
  for (size_t pos = 0; pos < text.size();) {
    bool comment = text.substr(pos, 4) == "<!--";
    std::string_view closing = comment ? "-->" : ">";
    bool& closes = comment ? comments_close : tags_close;  // a text with many '<' is searched to its end only once
    size_t end = text[pos] == '<' && closes ? text.find(closing, pos) : std::string_view::npos;
    if (text[pos] == '<' && end == std::string_view::npos) closes = false;
    if (end == std::string_view::npos) {
      plain += text[pos++];
    } else {
      pos = end + (comment ? 3 : 1);
    }
  }
  std::string out;
  for (std::string_view rest = strip_left(plain); !rest.empty();) {
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (is_space(decode(rest, next))) break;
      end = next;
    }
    if (!out.empty()) out += ' ';
    out += rest.substr(0, end);
    rest = strip_left(rest.substr(end));
  }
  static constexpr std::pair<std::string_view, char> kEntities[] = {{"&lt;", '<'},   {"&gt;", '>'},   {"&#34;", '"'},
                                                                    {"&quot;", '"'}, {"&#39;", '\''}, {"&amp;", '&'}};
  std::string unescaped;
  for (size_t i = 0; i < out.size();) {
    auto* found = std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& e) {
      return std::string_view(out).substr(i, e.first.size()) == e.first;
    });
    unescaped += found == std::end(kEntities) ? out[i] : found->second;
    i += found == std::end(kEntities) ? 1 : found->first.size();
  }
  return rt.string(std::move(unescaped));
}

Value wordcount(Runtime& rt, const Value& v, Bound) {
  Value soft_value = soft(rt, v);
  std::string_view text = soft_value.text();
  rt.budget.spend_bytes(text.size());
  Int n = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    bool word = is_word(decode(text, pos));
    n += word && !inside;
    inside = word;
  }
  return Value::integer(n);
}

Value truncate(Runtime& rt, const Value& v, Bound a) {
  Value soft_value = soft(rt, v);
  std::string_view text = soft_value.text();
  rt.budget.spend_bytes(text.size());
  Int length = int_arg(a[0], "truncate", 255);
  Int leeway = int_arg(a[3], "truncate", 5);
  rt.budget.spend(static_cast<int64_t>(text.size()));
  std::string end = a[2].is_absent() ? "..." : str(rt, a[2]);
  auto letters = split_code_points(text);
  Int keep = length - static_cast<Int>(count_code_points(end));
  if (keep < 0) fail(fmt::format("expected length >= {}, got {}", count_code_points(end), to_string(length)));
  if (leeway < 0) fail(fmt::format("expected leeway >= 0, got {}", to_string(leeway)));
  if (static_cast<Int>(letters.size()) <= length + leeway) return soft_value;
  auto n = static_cast<size_t>(std::min(keep, static_cast<Int>(letters.size())));
  std::string_view head =
      n == letters.size() ? text : text.substr(0, static_cast<size_t>(letters[n].data() - text.data()));
  if (!bool_arg(a[1], false)) {
    size_t space = head.rfind(' ');
    if (space != std::string_view::npos) head = head.substr(0, space);
  }
  return rt.string(std::string(head) + end);
}

// Breaks one line at blanks, so that pieces are at most `width` code points long where possible.
void wrap_line(Runtime& rt, std::string_view line, size_t width, bool break_long, std::string_view newline,
               std::string& out) {
  size_t used = 0;
  bool begun = false;
  while (!line.empty()) {
    bool blank = line[0] == ' ';
    size_t end = std::min(blank ? line.find_first_not_of(' ') : line.find(' '), line.size());
    std::string_view word = line.substr(0, end);
    line = line.substr(end);
    rt.budget.spend_bytes(word.size());
    size_t length = count_code_points(word);
    bool breaks = length > width && break_long && !blank;  // fill the current line first
    if (used + length > width && used > 0 && !breaks) {
      while (!out.empty() && out.back() == ' ') out.pop_back();
      rt.write(newline, out);
      used = 0;
    }
    if (blank && used == 0 && begun) continue;  // drop the blank at the break
    begun = true;
    if (breaks) {
      for (std::string_view letter : split_code_points(word)) {
        if (used == width) {
          rt.write(newline, out);
          used = 0;
        }
        rt.write(letter, out);
        ++used;
      }
    } else {
      rt.write(word, out);
      used += length;
    }
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
}

Value wordwrap(Runtime& rt, const Value& v, Bound a) {
  Value soft_value = soft(rt, v);
  Int width = int_arg(a[0], "wordwrap", 79);
  if (width <= 0) fail("invalid width (must be > 0)");
  width = std::min<Int>(width, 1 << 30);
  std::string newline = a[2].is_absent() || a[2].is_none() ? "\n" : str(rt, a[2]);
  std::string out;
  bool begun = false;
  for (std::string_view line : split_lines(soft_value.text(), false)) {
    if (begun) rt.write(newline, out);
    begun = true;
    std::string wrapped;
    wrap_line(rt, line, static_cast<size_t>(width), bool_arg(a[1], true), newline, wrapped);
    rt.write(wrapped, out);
  }
  return rt.string(std::move(out));
}

Value urlencode_text(Runtime& rt, std::string_view text, bool query) {
  std::string out;
  rt.budget.spend_bytes(text.size() * 3);
  for (char c : text) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                 c == '.' || c == '~' || (c == '/' && !query);
    if (plain)
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return rt.string(std::move(out));
}

Value urlencode(Runtime& rt, const Value& v, Bound) {
  bool pairs = v.is_dict() || v.is_sequence();
  if (!pairs) return urlencode_text(rt, soft(rt, v).text(), false);
  std::string out;
  auto add = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    rt.write(urlencode_text(rt, str(rt, key), true).text(), out);
    rt.write("=", out);
    rt.write(urlencode_text(rt, str(rt, value), true).text(), out);
  };
  if (v.is_dict()) {
    for (const auto& [key, value] : v.dict().items) add(key, value);
  } else {
    for (const Value& pair : rt.iterate(v)) {
      std::vector<Value> two = rt.iterate(pair);
      if (two.size() != 2) fail("urlencode: each element must be a pair");
      add(two[0], two[1]);
    }
  }
  return rt.string(std::move(out));
}

Value xmlattr(Runtime& rt, const Value& v, Bound a) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_dict()) fail(fmt::format("'{} object' has no attribute 'items'", type_name(v)));
  std::string out;
  for (const auto& [key, value] : v.dict().items) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!out.empty()) out += ' ';
    rt.write(escape(rt, key, {}).text(), out);
    rt.write("=\"", out);
    rt.write(escape(rt, value, {}).text(), out);
    rt.write("\"", out);
  }
  if (!out.empty() && bool_arg(a[0], true)) out.insert(0, " ");
  return rt.string(std::move(out));
}

Value filesizeformat(Runtime& rt, const Value& v, Bound a) {
  Args none;
  double bytes = call_native(rt, *find_filter("float"), v, none).as_double();
  bool binary = bool_arg(a[0], false);
  double base = binary ? 1024 : 1000;
  if (bytes == 1) return rt.string("1 Byte");
  if (bytes < base) return rt.string(fmt::format("{} Bytes", to_string(static_cast<Int>(bytes))));
  static constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  size_t i = 0;
  for (; i < 7 && bytes >= unit * base; ++i) unit *= base;
  std::string prefix = binary && i == 0 ? "K" : kUnits[i];
  return rt.string(fmt::format("{:.1f} {}{}", bytes / unit, prefix, binary ? "iB" : "B"));
}

Value format(Runtime& rt, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value soft_value = soft(rt, v);
  if (args.named.empty()) {
    return rt.string(percent_format(rt, soft_value.text(), rt.tuple(std::move(args.positional))));
  }
  std::vector<std::pair<Value, Value>> items;
  for (auto& [name, value] : args.named) items.emplace_back(rt.string(name), std::move(value));
  return rt.string(percent_format(rt, soft_value.text(), rt.dict(std::move(items))));
}

constexpr Native kTextFilters[] = {
    {"capitalize", "", capitalize_filter},
    {"center", "width?", center},
    {"e", "", escape},
    {"escape", "", escape},
    {"filesizeformat", "binary?", filesizeformat},
    {"forceescape", "", force_escape},
    {"format", "", nullptr, format},
    {"indent", "width? first? blank?", indent},
    {"lower", "", lower},
    {"replace", "old new count?", replace},
    {"safe", "", safe},
    {"string", "", string_filter},
    {"striptags", "", striptags},
    {"title", "", title_filter},
    {"trim", "chars?", trim},
    {"truncate", "length? killwords? end? leeway?", truncate},
    {"upper", "", upper},
    {"urlencode", "", urlencode},
    {"wordcount", "", wordcount},
    {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", wordwrap},
    {"xmlattr", "autospace?", xmlattr},
};

}  // namespace

std::span<const Native> text_filters() { return kTextFilters; }

}  // namespace millrace::jinja
