// Methods of str, dict, list, tuple, int and float.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"
#include "text/template/text_search.h"

namespace millrace::jinja {
namespace {

using Bound = std::span<const Value>;

Value text_value(Runtime& rt, const Value& self, std::string_view text) {
  return rt.string(std::string(text), self.string()->markup);
}

// Charges for reading the text once, and returns it.
std::string_view self_text(Runtime& rt, const Value& v) {
  rt.budget.spend_bytes(v.text().size());
  return v.text();
}

template <std::string (*F)(std::string_view)>
Value mapped(Runtime& rt, const Value& v, Bound) {
  rt.budget.spend(static_cast<int64_t>(v.text().size() / 4));
  return rt.string(F(v.text()), v.string()->markup);
}

template <bool Left, bool Right>
Value strip(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  if (a[0].is_absent() || a[0].is_none()) {
    if (Left) t = strip_left(t);
    if (Right) t = strip_right(t);
  } else {
    std::string_view chars = text_arg(a[0], "strip");
    rt.budget.spend_bytes(t.size() * chars.size());
    if (Left) t = strip_left(t, chars);
    if (Right) t = strip_right(t, chars);
  }
  return text_value(rt, v, t);
}

Value list_of(Runtime& rt, const Value& self, const std::vector<std::string_view>& parts) {
  rt.budget.spend(static_cast<int64_t>(parts.size()));
  std::vector<Value> out;
  out.reserve(parts.size());
  for (std::string_view part : parts) out.push_back(text_value(rt, self, part));
  return rt.sequence(std::move(out));
}

std::vector<std::string_view> split_spaces(std::string_view t, Int limit) {
  std::vector<std::string_view> parts;
  t = strip_left(t);
  while (!t.empty()) {
    if (limit >= 0 && static_cast<Int>(parts.size()) >= limit) {
      parts.push_back(t);  // with trailing blanks
      break;
    }
    size_t end = 0;
    while (end < t.size()) {
      size_t next = end;
      if (is_space(decode(t, next))) break;
      end = next;
    }
    parts.push_back(t.substr(0, end));
    t = strip_left(t.substr(end));
  }
  return parts;
}

std::vector<std::string_view> rsplit_spaces(std::string_view t, Int limit) {
  std::vector<std::string_view> all = split_spaces(t, -1);
  if (limit < 0 || static_cast<Int>(all.size()) <= limit) return all;
  size_t keep = static_cast<size_t>(limit);
  if (all.empty()) return all;
  // The head keeps its inner blanks: from the start of the text to the end of its last word.
  const char* head_end = all[all.size() - keep - 1].data() + all[all.size() - keep - 1].size();
  std::vector<std::string_view> out{t.substr(0, static_cast<size_t>(head_end - t.data()))};
  out.insert(out.end(), all.end() - static_cast<ptrdiff_t>(keep), all.end());
  return out;
}

Value split(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  Int limit = int_arg(a[1], "split", -1);
  if (a[0].is_absent() || a[0].is_none()) return list_of(rt, v, split_spaces(t, limit));
  std::string_view sep = text_arg(a[0], "split");
  if (sep.empty()) fail("empty separator");
  TextSearch search(sep, rt.budget);
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<Int>(parts.size()) < limit) {
    size_t at = search.find(t);
    if (at == std::string_view::npos) break;
    parts.push_back(t.substr(0, at));
    t = t.substr(at + sep.size());
  }
  parts.push_back(t);
  return list_of(rt, v, parts);
}

Value rsplit(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  Int limit = int_arg(a[1], "rsplit", -1);
  if (a[0].is_absent() || a[0].is_none()) return list_of(rt, v, rsplit_spaces(t, limit));
  std::string_view sep = text_arg(a[0], "rsplit");
  if (sep.empty()) fail("empty separator");
  TextSearch search(sep, rt.budget);
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<Int>(parts.size()) < limit) {
    size_t at = search.rfind(t);
    if (at == std::string_view::npos) break;
    parts.push_back(t.substr(at + sep.size()));
    t = t.substr(0, at);
  }
  parts.push_back(t);
  std::reverse(parts.begin(), parts.end());
  return list_of(rt, v, parts);
}

Value splitlines(Runtime& rt, const Value& v, Bound a) {
  return list_of(rt, v, split_lines(self_text(rt, v), bool_arg(a[0], false)));
}

template <bool FromRight>
Value partition(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  std::string_view sep = text_arg(a[0], "partition");
  if (sep.empty()) fail("empty separator");
  TextSearch search(sep, rt.budget);
  size_t at = FromRight ? search.rfind(t) : search.find(t);
  std::vector<Value> out;
  if (at == std::string_view::npos) {
    out = {text_value(rt, v, ""), text_value(rt, v, ""), text_value(rt, v, "")};
    out[FromRight ? 2 : 0] = v;
  } else {
    out = {text_value(rt, v, t.substr(0, at)), text_value(rt, v, sep), text_value(rt, v, t.substr(at + sep.size()))};
  }
  return rt.tuple(std::move(out));
}

// The part of the text between code points start and end, with the semantics of Python's optional arguments.
struct Window {
  std::string_view text;
  Int offset = 0;  // code points before it
  bool valid = true;
};

Window window(Runtime& rt, const Value& v, const Value& start, const Value& end) {
  std::string_view t = self_text(rt, v);
  bool whole = (start.is_absent() || start.is_none()) && (end.is_absent() || end.is_none());
  if (whole) return {t, 0, true};
  rt.budget.spend(static_cast<int64_t>(t.size()));
  auto letters = split_code_points(t);
  auto n = static_cast<Int>(letters.size());
  auto position = [&](const Value& p, Int otherwise) {
    Int i = p.is_absent() || p.is_none() ? otherwise : int_arg(p, "index");
    if (i < 0) i = std::max<Int>(i + n, 0);
    return i;
  };
  Int from = position(start, 0);
  Int to = std::min(position(end, n), n);
  if (from > to) return {{}, from, false};
  const char* begin = from < n ? letters[static_cast<size_t>(from)].data() : t.data() + t.size();
  const char* stop = to < n ? letters[static_cast<size_t>(to)].data() : t.data() + t.size();
  return {std::string_view(begin, static_cast<size_t>(stop - begin)), from, true};
}

template <bool Ends>
Value affix(Runtime& rt, const Value& v, Bound a) {
  Window w = window(rt, v, a[1], a[2]);
  const char* what = Ends ? "endswith" : "startswith";
  auto matches = [&](const Value& affix_value) {
    std::string_view x = text_arg(affix_value, what);
    rt.budget.spend_bytes(std::min(x.size(), w.text.size()));
    return w.valid && (Ends ? w.text.ends_with(x) : w.text.starts_with(x));
  };
  if (a[0].is_sequence() && a[0].sequence().type == SequenceType::tuple) {
    for (const Value& x : a[0].sequence().items) {
      if (matches(x)) return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  if (!a[0].is_string() && !a[0].is_undefined()) {
    fail(fmt::format("{} first arg must be str or a tuple of str, not {}", what, type_name(a[0])));
  }
  return Value::boolean(matches(a[0]));
}

template <bool FromRight, bool MustFind>
Value find(Runtime& rt, const Value& v, Bound a) {
  std::string_view x = text_arg(a[0], "find");
  Window w = window(rt, v, a[1], a[2]);
  TextSearch search(x, rt.budget);
  size_t at = !w.valid ? std::string_view::npos : FromRight ? search.rfind(w.text) : search.find(w.text);
  if (at != std::string_view::npos) {
    rt.budget.spend_bytes(at);
    return Value::integer(w.offset + static_cast<Int>(count_code_points(w.text.substr(0, at))));
  }
  if (MustFind) fail("substring not found");
  return Value::integer(-1);
}

Value count_text(Runtime& rt, const Value& v, Bound a) {
  std::string_view x = text_arg(a[0], "count");
  Window w = window(rt, v, a[1], a[2]);
  if (!w.valid) return Value::integer(0);
  if (x.empty()) return Value::integer(static_cast<Int>(count_code_points(w.text)) + 1);
  Int n = 0;
  TextSearch search(x, rt.budget);
  for (size_t at = search.find(w.text); at != std::string_view::npos; at = search.find(w.text, at + x.size())) ++n;
  return Value::integer(n);
}

Value replace(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  std::string_view from = text_arg(a[0], "replace");
  std::string_view to = text_arg(a[1], "replace");
  Int limit = int_arg(a[2], "replace", -1);
  std::string out;
  auto append = [&](std::string_view s) {
    rt.budget.check_string(out.size() + s.size());
    rt.budget.spend_bytes(s.size());
    out += s;
  };
  TextSearch search(from, rt.budget);
  Int done = 0;
  size_t pos = 0;
  while (limit < 0 || done < limit) {
    size_t at = from.empty() ? pos : search.find(t, pos);
    if (at == std::string_view::npos || at > t.size()) break;
    append(t.substr(pos, at - pos));
    append(to);
    ++done;
    pos = at + from.size();
    if (from.empty()) {  // between all characters, and at both ends
      if (pos >= t.size()) {
        pos = t.size();
        break;
      }
      size_t next = pos;
      decode(t, next);
      append(t.substr(pos, next - pos));
      pos = next;
    }
  }
  append(t.substr(pos));
  return rt.string(std::move(out), v.string()->markup);
}

Value join(Runtime& rt, const Value& v, Bound a) {
  std::string out;
  size_t i = 0;
  for (const Value& item : rt.iterate(a[0])) {
    if (!item.is_string()) {
      fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(item)));
    }
    if (i++) rt.write(v.text(), out);
    rt.write(item.text(), out);
  }
  return rt.string(std::move(out));
}

Value format(Runtime& rt, const Value& v, Args& args) { return rt.string(brace_format(rt, v.text(), args)); }

template <char Align>
Value justify(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  Int width = int_arg(a[0], "width");
  std::string_view fill = a[1].is_absent() ? " " : text_arg(a[1], "fill");
  rt.budget.spend_bytes(fill.size());
  if (count_code_points(fill) != 1) fail("The fill character must be exactly one character long");
  Int missing = width - static_cast<Int>(count_code_points(t));
  if (missing <= 0) return v;
  if (missing > rt.budget.string_bytes / 4) fail_resource("the text would be too long");
  rt.budget.spend_bytes(static_cast<size_t>(missing) * fill.size());
  // Python puts the extra fill character on the left if the width is odd.
  Int left = Align == '<' ? 0 : Align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += t;
  for (Int i = left; i < missing; ++i) out += fill;
  return rt.string(std::move(out));
}

Value zfill(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  Int missing = int_arg(a[0], "zfill") - static_cast<Int>(count_code_points(t));
  if (missing <= 0) return v;
  if (missing > rt.budget.string_bytes) fail_resource("the text would be too long");
  rt.budget.spend_bytes(static_cast<size_t>(missing));
  size_t sign = !t.empty() && (t[0] == '+' || t[0] == '-') ? 1 : 0;
  return rt.string(std::string(t.substr(0, sign)) + std::string(static_cast<size_t>(missing), '0') +
                   std::string(t.substr(sign)));
}

template <bool Prefix>
Value remove_affix(Runtime& rt, const Value& v, Bound a) {
  std::string_view t = self_text(rt, v);
  std::string_view x = text_arg(a[0], "removeprefix");
  rt.budget.spend_bytes(x.size());
  if (Prefix && t.starts_with(x)) t.remove_prefix(x.size());
  if (!Prefix && t.ends_with(x)) t.remove_suffix(x.size());
  return text_value(rt, v, t);
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (std::string_view letter : split_code_points(text)) {
    size_t pos = 0;
    out += is_upper(decode(letter, pos)) ? to_lower(letter) : to_upper(letter);
  }
  return out;
}

Value expandtabs(Runtime& rt, const Value& v, Bound a) {
  Int size = int_arg(a[0], "expandtabs", 8);
  if (size > 1 << 16) fail_resource("the text would be too long");
  std::string out;
  Int column = 0;
  for (std::string_view letter : split_code_points(self_text(rt, v))) {
    if (letter == "\t") {
      Int blanks = size > 0 ? size - column % size : 0;
      rt.budget.check_string(out.size() + static_cast<size_t>(blanks));
      rt.budget.spend_bytes(static_cast<size_t>(blanks));
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
    } else {
      out += letter;
      column = letter == "\n" || letter == "\r" ? 0 : column + 1;
    }
  }
  return rt.string(std::move(out));
}

// Tests that the text is not empty and all of its characters are in a class.
template <bool (*In)(char32_t)>
Value all_letters(Runtime& rt, const Value& v, Bound) {
  std::string_view t = self_text(rt, v);
  for (size_t pos = 0; pos < t.size();) {
    if (!In(decode(t, pos))) return Value::boolean(false);
  }
  return Value::boolean(!t.empty());
}

bool is_alnum(char32_t c) { return is_word(c) && c != '_'; }
bool is_identifier_letter(char32_t c) { return is_word(c); }

Value is_identifier(Runtime& rt, const Value& v, Bound a) {
  size_t pos = 0;
  bool starts = !v.text().empty() && !is_digit(decode(v.text(), pos));
  return starts ? all_letters<is_identifier_letter>(rt, v, a) : Value::boolean(false);
}

Value is_ascii(Runtime& rt, const Value& v, Bound) {
  std::string_view t = self_text(rt, v);
  return Value::boolean(std::all_of(t.begin(), t.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Value run_test(Runtime& rt, const Value& v, const char* name) {
  Args none;
  return Value::boolean(rt.apply_test(name, v, none));
}
Value is_lower_text(Runtime& rt, const Value& v, Bound) { return run_test(rt, v, "lower"); }
Value is_upper_text(Runtime& rt, const Value& v, Bound) { return run_test(rt, v, "upper"); }

Value is_title(Runtime& rt, const Value& v, Bound) {
  bool any = false;
  std::string_view t = self_text(rt, v);
  for (size_t pos = 0; pos < t.size() && !any;) {
    char32_t c = decode(t, pos);
    any = is_upper(c) || is_lower(c);
  }
  rt.budget.spend_bytes(t.size() * 4);
  return Value::boolean(any && title(t) == t);
}

constexpr Native kStringMethods[] = {
    {"capitalize", "/", mapped<capitalize>},
    {"casefold", "/", mapped<to_lower>},
    {"center", "/width fill?", justify<'^'>},
    {"count", "/sub start? end?", count_text},
    {"endswith", "/suffix start? end?", affix<true>},
    {"expandtabs", "tabsize?", expandtabs},
    {"find", "/sub start? end?", find<false, false>},
    {"format", "", nullptr, format},
    {"index", "/sub start? end?", find<false, true>},
    {"isalnum", "/", all_letters<is_alnum>},
    {"isalpha", "/", all_letters<is_alpha>},
    {"isascii", "/", is_ascii},
    {"isdecimal", "/", all_letters<is_digit>},
    {"isdigit", "/", all_letters<is_digit>},
    {"isidentifier", "/", is_identifier},
    {"islower", "/", is_lower_text},
    {"isnumeric", "/", all_letters<is_digit>},
    {"isprintable", "/", all_letters<is_printable>},
    {"isspace", "/", all_letters<is_space>},
    {"istitle", "/", is_title},
    {"isupper", "/", is_upper_text},
    {"join", "/iterable", join},
    {"ljust", "/width fill?", justify<'<'>},
    {"lower", "/", mapped<to_lower>},
    {"lstrip", "/chars?", strip<true, false>},
    {"partition", "/sep", partition<false>},
    {"removeprefix", "/prefix", remove_affix<true>},
    {"removesuffix", "/suffix", remove_affix<false>},
    {"replace", "/old new count?", replace},
    {"rfind", "/sub start? end?", find<true, false>},
    {"rindex", "/sub start? end?", find<true, true>},
    {"rjust", "/width fill?", justify<'>'>},
    {"rpartition", "/sep", partition<true>},
    {"rsplit", "sep? maxsplit?", rsplit},
    {"rstrip", "/chars?", strip<false, true>},
    {"split", "sep? maxsplit?", split},
    {"splitlines", "keepends?", splitlines},
    {"startswith", "/prefix start? end?", affix<false>},
    {"strip", "/chars?", strip<true, true>},
    {"swapcase", "/", mapped<swap_case>},
    {"title", "/", mapped<title>},
    {"upper", "/", mapped<to_upper>},
    {"zfill", "/width", zfill},
};

Value dict_get(Runtime& rt, const Value& v, Bound a) {
  check_hashable(a[0], rt.budget);
  const Value* found = v.dict().find(a[0], rt.budget);
  return found ? *found : a[1].is_absent() ? Value() : a[1];
}

template <SequenceType T>
Value dict_view(Runtime& rt, const Value& v, Bound) {
  const auto& items = v.dict().items;
  rt.budget.spend(static_cast<int64_t>(items.size()));
  std::vector<Value> out;
  out.reserve(items.size());
  for (const auto& [key, value] : items) {
    out.push_back(T == SequenceType::keys ? key : T == SequenceType::values ? value : rt.tuple({key, value}));
  }
  return rt.sequence(std::move(out), T);
}

Value dict_copy(Runtime&, const Value& v, Bound) { return v; }

constexpr Native kDictMethods[] = {
    {"copy", "/", dict_copy},
    {"get", "/key default?", dict_get},
    {"items", "/", dict_view<SequenceType::items>},
    {"keys", "/", dict_view<SequenceType::keys>},
    {"values", "/", dict_view<SequenceType::values>},
};

Value list_count(Runtime& rt, const Value& v, Bound a) {
  Int n = 0;
  for (const Value& item : v.sequence().items) {
    rt.budget.spend(1);
    n += equals(item, a[0], rt.budget);
  }
  return Value::integer(n);
}

Value list_index(Runtime& rt, const Value& v, Bound a) {
  const auto& items = v.sequence().items;
  auto n = static_cast<Int>(items.size());
  auto position = [&](const Value& p, Int otherwise) {
    Int i = int_arg(p, "index", otherwise);
    return i < 0 ? std::max<Int>(i + n, 0) : i;
  };
  Int end = std::min(position(a[2], n), n);
  for (Int i = position(a[1], 0); i < end; ++i) {
    rt.budget.spend(1);
    if (equals(items[static_cast<size_t>(i)], a[0], rt.budget)) return Value::integer(i);
  }
  fail(fmt::format("{} is not in list", repr(rt, a[0])));
}

constexpr Native kListMethods[] = {
    {"copy", "/", dict_copy},
    {"count", "/value", list_count},
    {"index", "/value start? end?", list_index},
};

Value is_integer_float(Runtime&, const Value& v, Bound) {
  double d = v.as_double();
  return Value::boolean(std::isfinite(d) && d == std::floor(d));
}

Value bit_length(Runtime&, const Value& v, Bound) {
  Int i = v.as_int();
  auto u = static_cast<unsigned __int128>(i < 0 ? -(i + 1) : i) + (i < 0 ? 1 : 0);
  Int n = 0;
  for (; u != 0; u >>= 1) ++n;
  return Value::integer(n);
}

constexpr Native kFloatMethods[] = {{"is_integer", "/", is_integer_float}};
constexpr Native kIntMethods[] = {{"bit_length", "/", bit_length}};

const Native* find_in(std::span<const Native> table, std::string_view name) {
  for (const Native& n : table) {
    if (n.name == name) return &n;
  }
  return nullptr;
}

}  // namespace

const Native* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::string: return find_in(kStringMethods, name);
    case Kind::dict: return find_in(kDictMethods, name);
    case Kind::floating: return find_in(kFloatMethods, name);
    case Kind::boolean:
    case Kind::integer: return find_in(kIntMethods, name);
    case Kind::sequence: {
      SequenceType t = self.sequence().type;
      if (t == SequenceType::list) return find_in(kListMethods, name);
      bool like_tuple = t == SequenceType::tuple || t == SequenceType::group || t == SequenceType::range;
      return like_tuple && name != "copy" ? find_in(kListMethods, name) : nullptr;
    }
    default: return nullptr;
  }
}

bool is_mutating_method(const Value& self, std::string_view name) {
  auto any = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (name.substr(0, 2) == "__" && !self.is_dict()) return true;
  if (self.is_dict()) return any({"clear", "pop", "popitem", "setdefault", "update"});
  if (self.is_sequence() && self.sequence().type == SequenceType::list) {
    return any({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  }
  return false;
}

}  // namespace millrace::jinja
