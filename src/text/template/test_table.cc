// The tests, which may follow `is`.
#include <fmt/format.h>

#include <cmath>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

using Bound = std::span<const Value>;

Value yes(bool b) { return Value::boolean(b); }

template <Kind K>
Value is_kind(Runtime&, const Value& v, Bound) {
  return yes(v.is(K));
}

template <Op O>
Value is_compare(Runtime& rt, const Value& v, Bound a) {
  if (O == Op::eq) return yes(equals(v, a[0], rt.budget));
  if (O == Op::ne) return yes(!equals(v, a[0], rt.budget));
  return yes(compare(O, v, a[0], rt.budget));
}

Value is_defined(Runtime&, const Value& v, Bound) { return yes(!v.is_undefined()); }
Value is_undefined(Runtime&, const Value& v, Bound) { return yes(v.is_undefined()); }
Value is_true(Runtime&, const Value& v, Bound) { return yes(v.is(Kind::boolean) && v.as_bool()); }
Value is_false(Runtime&, const Value& v, Bound) { return yes(v.is(Kind::boolean) && !v.as_bool()); }
Value is_number(Runtime&, const Value& v, Bound) { return yes(v.is_number()); }
Value is_integer(Runtime&, const Value& v, Bound) { return yes(v.is(Kind::integer)); }
Value is_escaped(Runtime&, const Value& v, Bound) { return yes(v.is_string() && v.string()->markup); }
Value is_in(Runtime& rt, const Value& v, Bound a) { return yes(contains(rt, a[0], v)); }
Value is_same(Runtime& rt, const Value& v, Bound a) { return yes(same(v, a[0], rt.budget)); }

Value is_sequence(Runtime&, const Value& v, Bound) {
  if (v.is_sequence()) {
    SequenceType t = v.sequence().type;
    return yes(t == SequenceType::list || t == SequenceType::tuple || t == SequenceType::range ||
               t == SequenceType::group);
  }
  return yes(v.is_string() || v.is_dict() || v.is_undefined());
}

Value is_iterable(Runtime&, const Value& v, Bound) {
  return yes(v.is_string() || v.is_dict() || v.is_undefined() || v.is_sequence());
}

Value is_callable(Runtime&, const Value& v, Bound) {
  return yes((v.is(Kind::object) && v.object()->callable()) || v.is_undefined());
}

Value remainder(Runtime& rt, const Value& v, const Value& by) { return arithmetic(rt, Op::mod, v, by); }

Value is_odd(Runtime& rt, const Value& v, Bound) {
  return yes(equals(remainder(rt, v, Value::integer(2)), Value::integer(1), rt.budget));
}
Value is_even(Runtime& rt, const Value& v, Bound) {
  return yes(equals(remainder(rt, v, Value::integer(2)), Value::integer(0), rt.budget));
}
Value is_divisible(Runtime& rt, const Value& v, Bound a) {
  return yes(equals(remainder(rt, v, a[0]), Value::integer(0), rt.budget));
}

// True if all cased letters have the given case, and there is at least one.
bool one_case(Runtime& rt, std::string_view text, bool upper) {
  rt.budget.spend_bytes(text.size() * 2);
  bool any = false;
  for (size_t pos = 0; pos < text.size();) {
    char32_t c = decode(text, pos);
    if (upper ? is_lower(c) : is_upper(c)) return false;
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return any;
}

Value is_lower_case(Runtime& rt, const Value& v, Bound) { return yes(one_case(rt, str(rt, v), false)); }
Value is_upper_case(Runtime& rt, const Value& v, Bound) { return yes(one_case(rt, str(rt, v), true)); }

Value is_filter(Runtime&, const Value& v, Bound) { return yes(v.is_string() && find_filter(v.text())); }
Value is_test(Runtime&, const Value& v, Bound) { return yes(v.is_string() && find_test(v.text())); }

constexpr Native kTests[] = {
    {"!=", "other", is_compare<Op::ne>},
    {"<", "other", is_compare<Op::lt>},
    {"<=", "other", is_compare<Op::le>},
    {"==", "other", is_compare<Op::eq>},
    {">", "other", is_compare<Op::gt>},
    {">=", "other", is_compare<Op::ge>},
    {"boolean", "", is_kind<Kind::boolean>},
    {"callable", "", is_callable},
    {"defined", "", is_defined},
    {"divisibleby", "num", is_divisible},
    {"eq", "other", is_compare<Op::eq>},
    {"equalto", "other", is_compare<Op::eq>},
    {"escaped", "", is_escaped},
    {"even", "", is_even},
    {"false", "", is_false},
    {"filter", "", is_filter},
    {"float", "", is_kind<Kind::floating>},
    {"ge", "other", is_compare<Op::ge>},
    {"greaterthan", "other", is_compare<Op::gt>},
    {"gt", "other", is_compare<Op::gt>},
    {"in", "seq", is_in},
    {"integer", "", is_integer},
    {"iterable", "", is_iterable},
    {"le", "other", is_compare<Op::le>},
    {"lessthan", "other", is_compare<Op::lt>},
    {"lower", "", is_lower_case},
    {"lt", "other", is_compare<Op::lt>},
    {"mapping", "", is_kind<Kind::dict>},
    {"ne", "other", is_compare<Op::ne>},
    {"none", "", is_kind<Kind::none>},
    {"number", "", is_number},
    {"odd", "", is_odd},
    {"sameas", "other", is_same},
    {"sequence", "", is_sequence},
    {"string", "", is_kind<Kind::string>},
    {"test", "", is_test},
    {"true", "", is_true},
    {"undefined", "", is_undefined},
    {"upper", "", is_upper_case},
};

}  // namespace

const Native* find_test(std::string_view name) {
  for (const Native& n : kTests) {
    if (n.name == name) return &n;
  }
  return nullptr;
}

}  // namespace millrace::jinja
