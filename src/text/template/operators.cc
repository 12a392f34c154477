#include "text/template/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/template/code_points.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"
#include "text/template/text_search.h"

namespace millrace::jinja {
namespace {

const char* symbol_of(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::sub: return "-";
    case Op::mul: return "*";
    case Op::div: return "/";
    case Op::floordiv: return "//";
    case Op::mod: return "%";
    case Op::pow: return "** or pow()";
    case Op::lt: return "<";
    case Op::le: return "<=";
    case Op::gt: return ">";
    case Op::ge: return ">=";
    default: return "?";
  }
}

template <typename T>
bool holds(Op op, const T& a, const T& b) {
  switch (op) {
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    case Op::gt: return a > b;
    default: return a >= b;
  }
}

[[noreturn]] void unsupported(Op op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail(a.undefined_message());
  if (b.is_undefined()) fail(b.undefined_message());
  if (op >= Op::lt) {
    fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol_of(op), type_name(a),
                     type_name(b)));
  }
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op), type_name(a), type_name(b)));
}

[[noreturn]] void overflow() { fail("integer result is too large"); }

bool is_plain(const Value& v, SequenceType type) { return v.is_sequence() && v.sequence().type == type; }
bool is_list(const Value& v) { return is_plain(v, SequenceType::list); }
bool is_tuple(const Value& v) { return is_plain(v, SequenceType::tuple) || is_plain(v, SequenceType::group); }

bool equal_sequences(const SequenceObject& a, const SequenceObject& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  budget.spend(static_cast<int64_t>(a.items.size()));
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (!equals(a.items[i], b.items[i], budget)) return false;
  }
  return true;
}

bool equal_dicts(const DictObject& a, const DictObject& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(key, budget);
    if (!other || !equals(value, *other, budget)) return false;
  }
  return true;
}

Int integer_power(Int base, Int exponent) {
  Int result = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

Value integer_arithmetic(Op op, Int a, Int b) {
  Int r = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Op::sub:
      if (__builtin_sub_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Op::mul:
      if (__builtin_mul_overflow(a, b, &r)) overflow();
      return Value::integer(r);
    case Op::div:
      if (b == 0) fail("division by zero");
      return Value::floating(static_cast<double>(a) / static_cast<double>(b));
    case Op::floordiv:
      if (b == 0) fail("integer division or modulo by zero");
      return Value::integer(floor_div(a, b));
    case Op::mod: {
      if (b == 0) fail("integer modulo by zero");
      if (b == -1) return Value::integer(0);
      Int m = a % b;
      return Value::integer(m != 0 && (m < 0) != (b < 0) ? m + b : m);
    }
    default:
      if (b >= 0) {
        // A base of 0, 1 or -1 allows any exponent; otherwise the loop has at most 128 steps.
        return Value::integer(a == -1            ? (b % 2 == 0 ? 1 : -1)
                              : a == 0 || a == 1 ? (b == 0 ? 1 : a)
                                                 : integer_power(a, b));
      }
      if (a == 0) fail("0.0 cannot be raised to a negative power");
      return Value::floating(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Value float_arithmetic(Op op, double a, double b) {
  switch (op) {
    case Op::add: return Value::floating(a + b);
    case Op::sub: return Value::floating(a - b);
    case Op::mul: return Value::floating(a * b);
    case Op::div:
      if (b == 0) fail("float division by zero");
      return Value::floating(a / b);
    case Op::floordiv:
    case Op::mod: {
      if (b == 0) fail(op == Op::mod ? "float modulo" : "float floor division by zero");
      double m = std::fmod(a, b);
      double q = (a - m) / b;
      if (m != 0) {
        if ((b < 0) != (m < 0)) {
          m += b;
          q -= 1;
        }
      } else {
        m = std::copysign(0.0, b);
      }
      if (op == Op::mod) return Value::floating(m);
      if (q == 0) return Value::floating(std::copysign(0.0, a / b));
      double whole = std::floor(q);
      return Value::floating(q - whole > 0.5 ? whole + 1 : whole);
    }
    default: return Value::floating(power(a, b));
  }
}

Value repeat(Runtime& rt, const Value& v, Int times) {
  times = std::max<Int>(times, 0);
  if (v.is_string()) {
    std::string_view text = v.text();
    if (text.empty() || times == 0) return rt.string("");
    if (times > rt.budget.string_bytes / static_cast<Int>(text.size())) {
      fail_resource("repeating a text makes it too long");
    }
    rt.budget.spend_bytes(text.size() * static_cast<size_t>(times));
    std::string out;
    out.reserve(text.size() * static_cast<size_t>(times));
    for (Int i = 0; i < times; ++i) out += text;
    return rt.string(std::move(out));
  }
  const auto& items = v.sequence().items;
  if (items.empty() || times == 0) return rt.sequence({}, v.sequence().type);
  if (times > rt.budget.steps / static_cast<Int>(items.size())) fail_resource("repeating a list makes it too long");
  rt.budget.spend(static_cast<int64_t>(items.size()) * static_cast<int64_t>(times));
  if (static_cast<Int>(sizeof(Value)) * times * static_cast<Int>(items.size()) > rt.budget.memory) {
    fail_resource("repeating a list needs too much memory");
  }
  std::vector<Value> out;
  out.reserve(items.size() * static_cast<size_t>(times));
  for (Int i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return rt.sequence(std::move(out), v.sequence().type);
}

std::string escape_html(std::string_view text) {
  std::string out;
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
  return out;
}

Value add_other(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    bool markup = a.string()->markup || b.string()->markup;
    rt.budget.check_string(a.text().size() + b.text().size());
    rt.budget.spend_bytes(a.text().size() + b.text().size());
    if (markup) {
      rt.budget.spend_bytes((a.text().size() + b.text().size()) * 4);
      auto safe = [](const Value& v) { return v.string()->markup ? std::string(v.text()) : escape_html(v.text()); };
      return rt.string(safe(a) + safe(b), true);
    }
    std::string out;
    out.reserve(a.text().size() + b.text().size());
    out.append(a.text()).append(b.text());
    return rt.string(std::move(out));
  }
  if ((is_list(a) && is_list(b)) || (is_tuple(a) && is_tuple(b))) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    rt.budget.spend(static_cast<int64_t>(x.size() + y.size()));
    std::vector<Value> out;
    out.reserve(x.size() + y.size());
    out.insert(out.end(), x.begin(), x.end());
    out.insert(out.end(), y.begin(), y.end());
    return rt.sequence(std::move(out), is_list(a) ? SequenceType::list : SequenceType::tuple);
  }
  if (b.is_undefined()) fail(b.undefined_message());
  if (a.is_string()) fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  if (is_list(a)) fail(fmt::format("can only concatenate list (not \"{}\") to list", type_name(b)));
  if (is_tuple(a)) fail(fmt::format("can only concatenate tuple (not \"{}\") to tuple", type_name(b)));
  unsupported(Op::add, a, b);
}

}  // namespace

Int floor_div(Int a, Int b) {
  if (b == -1) {
    Int r = 0;
    if (__builtin_sub_overflow(Int{0}, a, &r)) overflow();
    return r;
  }
  Int q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

double power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail("0.0 cannot be raised to a negative power");
  double r = std::pow(base, exponent);
  if (std::isnan(r) && !std::isnan(base) && !std::isnan(exponent)) fail("complex numbers are not supported");
  if (std::isinf(r) && std::isfinite(base) && std::isfinite(exponent)) fail("Numerical result out of range");
  return r;
}

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::absent:
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return v.as_int() != 0;
    case Kind::floating: return v.as_double() != 0;
    case Kind::string: return !v.text().empty();
    case Kind::sequence: return v.sequence().type == SequenceType::generator || !v.sequence().items.empty();
    case Kind::dict: return !v.dict().items.empty();
    case Kind::object: return true;
  }
  return false;
}

bool equals(const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string: return a.identity() == b.identity() || equal_texts(a.text(), b.text(), budget);
    case Kind::sequence: {
      if (a.identity() == b.identity()) return true;
      auto type = [](const Value& v) {
        SequenceType t = v.sequence().type;
        return t == SequenceType::group ? SequenceType::tuple : t;
      };
      if (type(a) != type(b) || type(a) == SequenceType::generator || type(a) == SequenceType::values) return false;
      return equal_sequences(a.sequence(), b.sequence(), budget);
    }
    case Kind::dict: return a.identity() == b.identity() || equal_dicts(a.dict(), b.dict(), budget);
    case Kind::object: return a.object() == b.object();
    default: return true;  // none, undefined
  }
}

bool same(const Value& a, const Value& b, Budget& budget) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::boolean:
    case Kind::integer: return a.as_int() == b.as_int();
    case Kind::floating: return a.as_double() == b.as_double();
    case Kind::string:
      return equal_texts(a.text(), b.text(), budget);  // strings compared with `is` are interned in Python
    case Kind::sequence:
    case Kind::dict: return a.identity() == b.identity();
    case Kind::object: return a.object() == b.object();
    default: return true;
  }
}

bool compare(Op op, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return holds(op, a.as_int(), b.as_int());
    return holds(op, a.as_double(), b.as_double());
  }
  if (a.is_string() && b.is_string()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return holds(op, a.text(), b.text());
  }
  if ((is_list(a) && is_list(b)) || (is_tuple(a) && is_tuple(b))) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      budget.spend(1);
      if (!equals(x[i], y[i], budget)) return compare(op, x[i], y[i], budget);
    }
    return holds(op, x.size(), y.size());
  }
  unsupported(op, a, b);
}

bool less(const Value& a, const Value& b, Budget& budget) { return compare(Op::lt, a, b, budget); }

bool contains(Runtime& rt, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    return TextSearch(item.text(), rt.budget).find(container.text()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    check_hashable(item, rt.budget);
    return container.dict().find(item, rt.budget) != nullptr;
  }
  if (container.is_undefined()) {
    if (container.is_unsafe()) fail(container.undefined_message());
    return false;
  }
  if (!container.is_sequence()) {
    fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
  for (const Value& v : rt.iterate(container)) {
    if (equals(v, item, rt.budget)) return true;
  }
  return false;
}

Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return integer_arithmetic(op, a.as_int(), b.as_int());
    return float_arithmetic(op, a.as_double(), b.as_double());
  }
  if (a.is_undefined()) fail(a.undefined_message());
  if (op == Op::add) return add_other(rt, a, b);
  if (op == Op::mod && a.is_string()) return rt.string(percent_format(rt, a.text(), b));
  if (op == Op::mul) {
    bool repeatable_a = a.is_string() || is_list(a) || is_tuple(a);
    bool repeatable_b = b.is_string() || is_list(b) || is_tuple(b);
    if (repeatable_a && b.is_integral()) return repeat(rt, a, b.as_int());
    if (repeatable_b && a.is_integral()) return repeat(rt, b, a.as_int());
    if (b.is_undefined()) fail(b.undefined_message());
    if (repeatable_a || repeatable_b) {
      fail(fmt::format("can't multiply sequence by non-int of type '{}'", type_name(repeatable_a ? b : a)));
    }
  }
  unsupported(op, a, b);
}

Value negate(const Value& v, Op op) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_number()) {
    fail(fmt::format("bad operand type for unary {}: '{}'", op == Op::neg ? "-" : "+", type_name(v)));
  }
  if (v.is(Kind::floating)) return Value::floating(op == Op::neg ? -v.as_double() : v.as_double());
  Int r = v.as_int();
  if (op == Op::neg && __builtin_sub_overflow(Int{0}, v.as_int(), &r)) overflow();
  return Value::integer(r);
}

Value slice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_dict()) fail("unhashable type: 'slice'");
  bool subscriptable =
      v.is_string() || (v.is_sequence() && (is_list(v) || is_tuple(v) || v.sequence().type == SequenceType::range));
  if (!subscriptable) fail(fmt::format("'{}' object is not subscriptable", type_name(v)));
  auto number = [](const Value& x, Int otherwise) {
    if (x.is_none()) return otherwise;
    if (!x.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
    return x.as_int();
  };
  std::vector<std::string_view> letters;
  if (v.is_string()) {
    rt.budget.spend_bytes(v.text().size() * 4);
    letters = split_code_points(v.text());
  }
  Int n = static_cast<Int>(v.is_string() ? letters.size() : v.sequence().items.size());
  Int by = number(step, 1);
  if (by == 0) fail("slice step cannot be zero");
  auto clamp = [&](Int i) {
    if (i < 0) i = i < -n ? (by < 0 ? -1 : 0) : i + n;
    return i >= n ? (by < 0 ? n - 1 : n) : i;
  };
  Int from = start.is_none() ? (by < 0 ? n - 1 : 0) : clamp(number(start, 0));
  Int to = stop.is_none() ? (by < 0 ? -1 : n) : clamp(number(stop, 0));
  std::string text;
  std::vector<Value> items;
  rt.budget.spend(static_cast<int64_t>(v.is_string() ? n / 16 : n));
  by = std::clamp<Int>(by, -n - 1, n + 1);  // larger steps are equivalent; prevents overflow
  for (Int i = from; by > 0 ? i < to : i > to; i += by) {
    if (v.is_string()) {
      text += letters[static_cast<size_t>(i)];
    } else {
      items.push_back(v.sequence().items[static_cast<size_t>(i)]);
    }
  }
  if (v.is_string()) return rt.string(std::move(text), v.string()->markup);
  return rt.sequence(std::move(items), is_tuple(v) ? SequenceType::tuple : SequenceType::list);
}

void check_hashable(const Value& key, Budget& budget) {
  budget.spend(1);
  bool bad = key.is_dict() || (key.is_sequence() && key.sequence().type == SequenceType::list);
  if (bad) fail(fmt::format("unhashable type: '{}'", type_name(key)));
  if (key.is_sequence() && key.sequence().type == SequenceType::tuple) {
    for (const Value& v : key.sequence().items) check_hashable(v, budget);
  }
}

}  // namespace millrace::jinja
