// Expressions.
#include <fmt/format.h>

#include "text/template/natives.h"
#include "text/template/objects.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {

Value Runtime::eval(const Expr& e, const ScopePtr& scope) {
  budget.spend(1);
  Level level(*this);
  switch (e.type) {
    case ExprType::constant: return e.value;
    case ExprType::name: return lookup(e, scope);
    case ExprType::list:
    case ExprType::tuple:
    case ExprType::dict: return eval_constructor(e, scope);
    case ExprType::attribute: return attribute(eval(*e.children[0], scope), e.symbol->text);
    case ExprType::item: {
      Value base = eval(*e.children[0], scope);
      return item(base, eval(*e.children[1], scope));
    }
    case ExprType::slice: return eval_slice(e, scope);
    case ExprType::call: return eval_call(e, scope, nullptr);
    case ExprType::filter: return eval_filter(e, nullptr, scope);
    case ExprType::test: return eval_test(e, scope);
    case ExprType::unary: return negate(eval(*e.children[0], scope), e.op);
    case ExprType::binary: {
      Value left = eval(*e.children[0], scope);
      Value right = eval(*e.children[1], scope);
      line = e.line;
      return arithmetic(*this, e.op, left, right);
    }
    case ExprType::compare: return eval_compare(e, scope);
    case ExprType::concat: return eval_concat(e, scope);
    case ExprType::logical_and: {
      Value left = eval(*e.children[0], scope);
      return truthy(left) ? eval(*e.children[1], scope) : left;
    }
    case ExprType::logical_or: {
      Value left = eval(*e.children[0], scope);
      return truthy(left) ? left : eval(*e.children[1], scope);
    }
    case ExprType::logical_not: return Value::boolean(!truthy(eval(*e.children[0], scope)));
    case ExprType::conditional:
      if (truthy(eval(*e.children[1], scope))) return eval(*e.children[0], scope);
      if (e.children[2]) return eval(*e.children[2], scope);
      return undefined(Missing::hint, Value(),
                       fmt::format("the inline if-expression on line {} evaluated to false and no else section was "
                                   "defined.",
                                   e.line));
  }
  return Value();
}

Value Runtime::lookup(const Expr& e, const ScopePtr& scope) {
  for (const Scope* s = scope.get(); s; s = s->parent.get()) {
    budget.spend(static_cast<int64_t>(s->variables.size() / 16));
    if (const Value* v = s->find(e.name)) return *v;
  }
  if (const Value* v = root_[static_cast<size_t>(e.name)]) return *v;
  if (const Native* global = find_global(e.symbol->text)) return Value::object(object<BoundNative>(*global, Value()));
  return Value::undefined(Missing::variable, nullptr, e.symbol);
}

Value Runtime::eval_constructor(const Expr& e, const ScopePtr& scope) {
  if (e.type == ExprType::dict) {
    DictObject made;
    for (size_t i = 0; i < e.children.size(); i += 2) {
      Value key = eval(*e.children[i], scope);
      check_hashable(key, budget);
      made.set(key, eval(*e.children[i + 1], scope), budget);
    }
    return dict(std::move(made.items));
  }
  std::vector<Value> items;
  items.reserve(e.children.size());
  for (const ExprPtr& child : e.children) items.push_back(eval(*child, scope));
  return sequence(std::move(items), e.type == ExprType::tuple ? SequenceType::tuple : SequenceType::list);
}

Value Runtime::eval_slice(const Expr& e, const ScopePtr& scope) {
  Value base = eval(*e.children[0], scope);
  Value bounds[3];
  for (int i = 0; i < 3; ++i) {
    if (e.children[static_cast<size_t>(i) + 1]) bounds[i] = eval(*e.children[static_cast<size_t>(i) + 1], scope);
  }
  line = e.line;
  return slice(*this, base, bounds[0], bounds[1], bounds[2]);
}

Value Runtime::eval_compare(const Expr& e, const ScopePtr& scope) {
  Value left = eval(*e.children[0], scope);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.children[i + 1], scope);
    line = e.line;
    bool holds = false;
    switch (e.ops[i]) {
      case Op::eq: holds = equals(left, right, budget); break;
      case Op::ne: holds = !equals(left, right, budget); break;
      case Op::in: holds = contains(*this, right, left); break;
      case Op::not_in: holds = !contains(*this, right, left); break;
      default: holds = compare(e.ops[i], left, right, budget);
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Runtime::eval_concat(const Expr& e, const ScopePtr& scope) {
  std::string out;
  for (const ExprPtr& child : e.children) {
    Value v = eval(*child, scope);
    if (v.is_string()) {
      write(v.text(), out);
    } else {
      write(str(*this, v), out);
    }
  }
  return string(std::move(out));
}

Value Runtime::eval_filter(const Expr& e, const Value* piped, const ScopePtr& scope) {
  Value v;
  const ExprPtr& inner = e.children[0];
  if (!inner) {
    v = *piped;
  } else if (piped && inner->type == ExprType::filter) {  // a filter chain applied to the block's text
    Level level(*this);
    v = eval_filter(*inner, piped, scope);
  } else {
    v = eval(*inner, scope);
  }
  Args args = eval_arguments(e.args, scope);
  line = e.line;
  return apply_filter(e.text, v, args);
}

Value Runtime::eval_test(const Expr& e, const ScopePtr& scope) {
  // `defined` and `undefined` are by far the most frequent tests, and must not fail on unsafe attributes.
  Value v = eval(*e.children[0], scope);
  if (e.args.empty() && e.text == "defined") return Value::boolean(!v.is_undefined());
  Args args = eval_arguments(e.args, scope);
  line = e.line;
  return Value::boolean(apply_test(e.text, v, args));
}

Args Runtime::eval_arguments(const std::vector<Argument>& arguments, const ScopePtr& scope) {
  Args out;
  for (const Argument& a : arguments) {
    Value v = eval(*a.value, scope);
    switch (a.type) {
      case Argument::Type::positional: out.positional.push_back(std::move(v)); break;
      case Argument::Type::named: out.named.emplace_back(a.name, std::move(v)); break;
      case Argument::Type::star:
        for (Value& item : iterate(v)) out.positional.push_back(std::move(item));
        break;
      case Argument::Type::double_star:
        if (v.is_undefined()) break;
        if (!v.is_dict()) fail(fmt::format("argument after ** must be a mapping, not {}", type_name(v)));
        budget.spend(static_cast<int64_t>(v.dict().items.size()));
        for (const auto& [key, value] : v.dict().items) {
          if (!key.is_string()) fail("keywords must be strings");
          out.named.emplace_back(std::string(key.text()), value);
        }
    }
  }
  return out;
}

Value Runtime::eval_call(const Expr& e, const ScopePtr& scope, const Value* caller) {
  const Expr& target = *e.children[0];
  // Fast path: call a method of a plain value without creating a bound method object.
  if (target.type == ExprType::attribute && !caller) {
    Value base = eval(*target.children[0], scope);
    std::string_view name = target.symbol->text;
    const Native* method = base.is(Kind::object) || base.is_undefined() ? nullptr : find_method(base, name);
    if (method && !is_mutating_method(base, name)) {
      Args args = eval_arguments(e.args, scope);
      line = e.line;
      budget.spend(1);
      return call_native(*this, *method, base, args);
    }
    line = e.line;
    Value callee = attribute(base, name);
    Args args = eval_arguments(e.args, scope);
    line = e.line;
    return call(callee, args);
  }
  if (target.type == ExprType::name && !caller) {  // the same for a global function
    const Native* global = nullptr;
    bool shadowed = root_[static_cast<size_t>(target.name)] != nullptr;
    for (const Scope* s = scope.get(); s && !shadowed; s = s->parent.get()) {
      budget.spend(static_cast<int64_t>(s->variables.size() / 16));
      shadowed = s->find(target.name) != nullptr;
    }
    if (!shadowed && (global = find_global(target.symbol->text))) {
      Args args = eval_arguments(e.args, scope);
      line = e.line;
      budget.spend(1);
      return call_native(*this, *global, Value(), args);
    }
  }
  Value callee = eval(target, scope);
  Args args = eval_arguments(e.args, scope);
  if (caller) args.named.emplace_back("caller", *caller);
  line = e.line;
  return call(callee, args);
}

}  // namespace millrace::jinja
