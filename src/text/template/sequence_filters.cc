// Filters on whole sequences and on values of any type.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

using Bound = std::span<const Value>;

Value length(Runtime& rt, const Value& v, Bound) { return Value::integer(rt.length(v)); }
Value list(Runtime& rt, const Value& v, Bound) { return rt.sequence(rt.iterate(v)); }

Value first(Runtime& rt, const Value& v, Bound) {
  if (v.is_sequence() && v.sequence().type == SequenceType::generator) {
    SequenceObject& s = v.sequence();
    if (s.next < s.items.size()) return s.items[s.next++];
  } else if (v.is_string()) {
    if (!v.text().empty()) {
      size_t end = 0;
      decode(v.text(), end);
      return rt.string(std::string(v.text().substr(0, end)));
    }
  } else {
    std::vector<Value> items = rt.iterate(v);
    if (!items.empty()) return items.front();
  }
  return rt.undefined(Missing::hint, Value(), "No first item, sequence was empty.");
}

Value last(Runtime& rt, const Value& v, Bound) {
  if (v.is_sequence() && v.sequence().type == SequenceType::generator) {
    fail(fmt::format("'{}' object is not reversible", type_name(v)));
  }
  std::vector<Value> items = rt.iterate(v);
  if (!items.empty()) return items.back();
  return rt.undefined(Missing::hint, Value(), "No last item, sequence was empty.");
}

Value reverse(Runtime& rt, const Value& v, Bound) {
  if (v.is_string()) {
    rt.budget.spend(static_cast<int64_t>(v.text().size()));
    auto letters = split_code_points(v.text());
    std::string out;
    for (auto it = letters.rbegin(); it != letters.rend(); ++it) out += *it;
    return rt.string(std::move(out));
  }
  std::vector<Value> items = rt.iterate(v);
  std::reverse(items.begin(), items.end());
  return rt.generator(std::move(items), "list_reverseiterator");
}

Value batch(Runtime& rt, const Value& v, Bound a) {
  Int count = int_arg(a[0], "batch");
  bool fill = !a[1].is_absent() && !a[1].is_none();
  std::vector<Value> out, row;
  for (Value& item : rt.iterate(v)) {
    if (static_cast<Int>(row.size()) == count) out.push_back(rt.sequence(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (fill) {
      if (count > 1'000'000) fail_resource("batch: rows are too long");
      rt.budget.spend(static_cast<int64_t>(std::max<Int>(count, 0)));
      while (static_cast<Int>(row.size()) < count) row.push_back(a[1]);
    }
    out.push_back(rt.sequence(std::move(row)));
  }
  return rt.generator(std::move(out));
}

Value slice_filter(Runtime& rt, const Value& v, Bound a) {
  std::vector<Value> items = rt.iterate(v);
  Int count = int_arg(a[0], "slice");
  if (count == 0) fail("integer division or modulo by zero");
  if (count > 1'000'000) fail_resource("slice: too many slices");
  rt.budget.spend(static_cast<int64_t>(std::max<Int>(count, 0)));
  bool fill = !a[1].is_absent() && !a[1].is_none();
  Int per = floor_div(static_cast<Int>(items.size()), count);
  Int longer = static_cast<Int>(items.size()) - per * count;
  std::vector<Value> out;
  size_t at = 0;
  for (Int i = 0; i < count; ++i) {
    std::vector<Value> row;
    for (Int k = 0; k < per + (i < longer ? 1 : 0); ++k) row.push_back(items[at++]);
    if (fill && i >= longer) row.push_back(a[1]);
    out.push_back(rt.sequence(std::move(row)));
  }
  return rt.generator(std::move(out));
}

Value items(Runtime& rt, const Value& v, Bound) {
  if (v.is_undefined()) return rt.generator({});
  if (!v.is_dict()) fail("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  rt.budget.spend(static_cast<int64_t>(v.dict().items.size()));
  for (const auto& [key, value] : v.dict().items) out.push_back(rt.tuple({key, value}));
  return rt.generator(std::move(out));
}

Value default_filter(Runtime& rt, const Value& v, Bound a) {
  bool use = v.is_undefined() || (bool_arg(a[1], false) && !truthy(v));
  if (!use) return v;
  return a[0].is_absent() ? rt.string("") : a[0];
}

Value attr(Runtime& rt, const Value& v, Bound a) {
  std::string name = str(rt, a[0]);
  if (v.is_dict() && !find_method(v, name) && !is_mutating_method(v, name)) {
    return rt.undefined(Missing::attribute, v, name);
  }
  return rt.attribute(v, name);
}

Value absolute(Runtime& rt, const Value& v, Bound) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_number()) fail(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
  if (v.is(Kind::floating)) return Value::floating(std::fabs(v.as_double()));
  return v.as_int() < 0 ? negate(v, Op::neg) : Value::integer(v.as_int());
}

// Python's int(text, base); absent if the text is not a number.
Value parse_int(std::string_view text, Int base) {
  text = strip_right(strip_left(text));
  bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  auto prefix = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter; };
  Int implied = prefix('x') ? 16 : prefix('o') ? 8 : prefix('b') ? 2 : 0;
  if (implied != 0 && (base == implied || base == 0)) {
    text.remove_prefix(2);
    if (text[0] == '_') text.remove_prefix(1);
    base = implied;
  }
  if (base == 0) base = 10;
  if (text.empty() || text.front() == '_' || text.back() == '_') return Value::absent();
  Int v = 0;
  char before = 0;
  for (char c : text) {
    if (c == '_') {
      if (before == '_') return Value::absent();
      before = c;
      continue;
    }
    before = c;
    char low = static_cast<char>(c | 0x20);
    Int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
    if (digit >= base) return Value::absent();
    if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v)) fail("integer is too large");
  }
  return Value::integer(negative ? -v : v);
}

// Python's float(text); absent if the text is not a number.
Value parse_float(std::string_view text) {
  text = strip_right(strip_left(text));
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    auto digit = [&](size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] == '_') {
      if (i == 0 || !digit(i - 1) || !digit(i + 1)) return Value::absent();
      continue;
    }
    clean += text[i];
  }
  std::string low = to_lower(clean);
  std::string_view body = low;
  if (!body.empty() && (body[0] == '+' || body[0] == '-')) body.remove_prefix(1);
  bool named = body == "inf" || body == "infinity" || body == "nan";
  if (!named && (body.empty() || body.find_first_not_of("0123456789.e+-") != std::string_view::npos)) {
    return Value::absent();
  }
  char* end = nullptr;
  double d = std::strtod(low.c_str(), &end);
  if (end != low.c_str() + low.size()) return Value::absent();
  return Value::floating(d);
}

Value truncate_float(double d) {
  if (!(std::fabs(d) < 1.7e38)) fail("cannot convert float infinity or NaN to integer");
  return Value::integer(static_cast<Int>(d));
}

Value to_int(Runtime& rt, const Value& v, Bound a) {
  Value otherwise = a[0].is_absent() ? Value::integer(0) : a[0];
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_integral()) return Value::integer(v.as_int());
  if (v.is(Kind::floating)) return std::isnan(v.as_double()) ? otherwise : truncate_float(v.as_double());
  if (!v.is_string()) return otherwise;
  rt.budget.spend_bytes(v.text().size());
  Int base = int_arg(a[1], "int", 10);
  if (base != 0 && (base < 2 || base > 36)) return otherwise;
  Value exact = parse_int(v.text(), base);
  if (!exact.is_absent()) return exact;
  Value real = parse_float(v.text());
  if (real.is_absent() || !(std::fabs(real.as_double()) < 1.7e38)) return otherwise;
  return truncate_float(real.as_double());
}

Value to_float(Runtime& rt, const Value& v, Bound a) {
  Value otherwise = a[0].is_absent() ? Value::floating(0) : a[0];
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_number()) return Value::floating(v.as_double());
  if (!v.is_string()) return otherwise;
  rt.budget.spend_bytes(v.text().size());
  Value real = parse_float(v.text());
  return real.is_absent() ? otherwise : real;
}

// Python's round(value, digits) of a float: the decimal nearest to its exact value, ties to even.
double round_half_even(double v, int digits) {
  if (!std::isfinite(v)) return v;
  if (digits < 0) {
    double scale = std::pow(10.0, -digits);
    return std::isinf(scale) ? 0.0 : std::nearbyint(v / scale) * scale;
  }
  char buffer[512];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, v);
  return std::strtod(buffer, nullptr);
}

Value round_filter(Runtime& rt, const Value& v, Bound a) {
  Int digits = int_arg(a[0], "round", 0);
  std::string method = a[1].is_absent() ? "common" : str(rt, a[1]);
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_number()) fail(fmt::format("type {} doesn't define __round__ method", type_name(v)));
  if (digits > 150 || digits < -400) {
    if (digits > 150) return v;
    return v.is_integral() ? Value::integer(0) : Value::floating(0);
  }
  int n = static_cast<int>(digits);
  if (method != "common") {
    double scale = std::pow(10.0, n);
    double scaled = v.as_double() * scale;
    return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  if (v.is(Kind::floating)) return Value::floating(round_half_even(v.as_double(), n));
  if (n >= 0) return Value::integer(v.as_int());
  if (n < -37) return Value::integer(0);
  Int unit = 1;
  for (int i = 0; i < -n; ++i) unit *= 10;
  Int low = floor_div(v.as_int(), unit);
  Int rest = v.as_int() - low * unit;
  if (rest * 2 > unit || (rest * 2 == unit && low % 2 != 0)) ++low;
  return Value::integer(low * unit);
}

Value tojson(Runtime& rt, const Value& v, Bound a) {
  JsonStyle style;
  style.ensure_ascii = bool_arg(a[0], false);
  style.sort_keys = bool_arg(a[3], false);
  if (!a[1].is_absent() && !a[1].is_none()) {
    style.has_indent = true;
    style.item_separator = ",";
    if (a[1].is_string()) {
      style.indent = a[1].text();
    } else {
      Int width = int_arg(a[1], "indent");
      if (width > 4096) fail_resource("tojson: the indent is too wide");
      style.indent = std::string(static_cast<size_t>(std::max<Int>(width, 0)), ' ');
    }
  }
  if (!a[2].is_absent() && !a[2].is_none()) {
    std::vector<Value> parts = rt.iterate(a[2]);
    if (parts.size() != 2) fail("tojson: separators must be a pair of texts");
    style.item_separator = text_arg(parts[0], "separators");
    style.key_separator = text_arg(parts[1], "separators");
  }
  return rt.string(to_json(rt, v, style));
}

Value pprint(Runtime& rt, const Value& v, Bound) { return rt.string(repr(rt, v)); }

constexpr Native kSequenceFilters[] = {
    {"abs", "", absolute},
    {"attr", "name", attr},
    {"batch", "linecount fill_with?", batch},
    {"count", "", length},
    {"d", "default_value? boolean?", default_filter},
    {"default", "default_value? boolean?", default_filter},
    {"first", "", first},
    {"float", "default?", to_float},
    {"int", "default? base?", to_int},
    {"items", "", items},
    {"last", "", last},
    {"length", "", length},
    {"list", "", list},
    {"pprint", "", pprint},
    {"reverse", "", reverse},
    {"round", "precision? method?", round_filter},
    {"slice", "slices fill_with?", slice_filter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tojson},
};

}  // namespace

std::span<const Native> sequence_filters() { return kSequenceFilters; }

}  // namespace millrace::jinja
