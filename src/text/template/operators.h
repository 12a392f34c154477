// Python's operators on values. Every loop is charged to the budget, because comparing structures with shared parts may
// need exponentially many steps; it then fails with a resource error.
#pragma once

#include "text/template/ast.h"
#include "text/template/value.h"

namespace millrace::jinja {

bool truthy(const Value& v);
bool equals(const Value& a, const Value& b, Budget& budget);
bool same(const Value& a, const Value& b, Budget& budget);            // Python's `is`
bool compare(Op op, const Value& a, const Value& b, Budget& budget);  // lt le gt ge; fails if types have no order
bool less(const Value& a, const Value& b, Budget& budget);
bool contains(Runtime& rt, const Value& container, const Value& item);
Value arithmetic(Runtime& rt, Op op, const Value& a, const Value& b);
Value negate(const Value& v, Op op);
Value slice(Runtime& rt, const Value& v, const Value& start, const Value& stop, const Value& step);
// Fails if `key` cannot be a key of a dict. Charges for each part, because a tuple may contain another tuple many
// times.
void check_hashable(const Value& key, Budget& budget);
Int floor_div(Int a, Int b);
double power(double base, double exponent);

}  // namespace millrace::jinja
