// Statements.
#include <fmt/format.h>

#include "text/template/objects.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

ScopePtr inner(const ScopePtr& outer) {
  auto scope = std::make_shared<Scope>();
  scope->parent = outer;
  return scope;
}

ScopePtr outermost(ScopePtr scope) {
  while (scope->parent) scope = scope->parent;
  return scope;
}

}  // namespace

Runtime::Flow Runtime::execute(const Body& body, const ScopePtr& scope, std::string& out) {
  Level level(*this);
  for (const StmtPtr& s : body) {
    Flow flow = execute_one(*s, scope, out);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Runtime::Flow Runtime::execute_one(const Stmt& s, const ScopePtr& scope, std::string& out) {
  budget.spend(1);
  line = s.line;
  switch (s.type) {
    case StmtType::text: write(s.value.text(), out); break;
    case StmtType::print:
      for (const ExprPtr& e : s.values) {
        Value v = eval(*e, scope);
        if (v.is_string()) {
          write(v.text(), out);
        } else {
          write(str(*this, v), out);
        }
      }
      break;
    case StmtType::branch: return execute_branch(s, scope, out);
    case StmtType::loop: execute_loop(s, scope, out); break;
    case StmtType::assign: assign(s.target, eval(*s.expr, scope), scope); break;
    case StmtType::assign_block: assign(s.target, filtered_body(s, scope), scope); break;
    case StmtType::macro: scope->set(s.target.name, Value::object(object<Macro>(*s.macro, scope))); break;
    case StmtType::call_block: {
      Value caller = Value::object(object<Macro>(*s.macro, scope));
      Value v = eval_call(*s.expr, scope, &caller);
      write(str(*this, v), out);
      break;
    }
    case StmtType::filter_block: write(str(*this, filtered_body(s, scope)), out); break;
    case StmtType::with: execute_with(s, scope, out); break;
    case StmtType::scope: execute(s.bodies[0], inner(s.root_scope ? outermost(scope) : scope), out); break;
    case StmtType::break_loop: return Flow::break_loop;
    case StmtType::continue_loop: return Flow::continue_loop;
  }
  return Flow::next;
}

Runtime::Flow Runtime::execute_branch(const Stmt& s, const ScopePtr& scope, std::string& out) {
  for (size_t i = 0; i < s.conditions.size(); ++i) {
    line = s.conditions[i]->line;
    if (truthy(eval(*s.conditions[i], scope))) return execute(s.bodies[i], scope, out);
  }
  if (s.bodies.size() > s.conditions.size()) return execute(s.bodies.back(), scope, out);
  return Flow::next;
}

void Runtime::execute_loop(const Stmt& s, const ScopePtr& scope, std::string& out) {
  run_loop(s, iterate(eval(*s.expr, scope)), scope, 0, out);
}

void Runtime::run_loop(const Stmt& s, const std::vector<Value>& all, const ScopePtr& scope, int depth,
                       std::string& out) {
  Level level(*this);
  std::vector<Value> kept;
  if (s.condition) {
    for (const Value& v : all) {
      ScopePtr pass = inner(scope);
      assign(s.target, v, pass);
      if (truthy(eval(*s.condition, pass))) kept.push_back(v);
    }
  }
  const std::vector<Value>& items = s.condition ? kept : all;
  if (items.empty()) {
    if (s.bodies.size() > 1) execute(s.bodies[1], inner(scope), out);
    return;
  }
  Loop* loop = object<Loop>(s, scope, &items, depth);
  struct End {
    Loop* loop;
    ~End() { loop->end(); }
  } end{loop};
  ScopePtr pass;
  for (size_t i = 0; i < items.size(); ++i) {
    budget.spend(1);
    if (pass && pass.use_count() == 1) {
      pass->variables.clear();
    } else {
      pass = inner(scope);
    }
    loop->set_index(i);
    pass->set(ast_.loop_name, Value::object(loop));
    assign(s.target, items[i], pass);
    if (execute(s.bodies[0], pass, out) == Flow::break_loop) break;
  }
}

void Runtime::execute_with(const Stmt& s, const ScopePtr& scope, std::string& out) {
  ScopePtr body = inner(scope);
  for (size_t i = 0; i < s.targets.size(); ++i) assign(s.targets[i], eval(*s.values[i], scope), body);
  execute(s.bodies[0], body, out);
}

Value Runtime::filtered_body(const Stmt& s, const ScopePtr& scope) {
  std::string text;
  ScopePtr body = inner(scope);
  execute(s.bodies[0], body, text);
  Value v = string(std::move(text));
  return s.expr ? eval_filter(*s.expr, &v, body) : v;
}

void Runtime::assign(const Target& target, Value value, const ScopePtr& scope) {
  if (target.is_tuple) {
    std::vector<Value> parts = iterate(value);
    if (parts.size() < target.parts.size()) {
      fail(fmt::format("not enough values to unpack (expected {}, got {})", target.parts.size(), parts.size()));
    }
    if (parts.size() > target.parts.size()) {
      fail(fmt::format("too many values to unpack (expected {})", target.parts.size()));
    }
    for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], std::move(parts[i]), scope);
    return;
  }
  if (target.attribute.empty()) {
    budget.spend(static_cast<int64_t>(scope->variables.size() / 16));
    scope->set(target.name, std::move(value));
    return;
  }
  const Value* found = nullptr;
  for (const Scope* s = scope.get(); s && !found; s = s->parent.get()) {
    budget.spend(static_cast<int64_t>(s->variables.size() / 16));
    found = s->find(target.name);
  }
  auto* space = found && found->is(Kind::object) ? dynamic_cast<Namespace*>(found->object()) : nullptr;
  if (!space) fail("cannot assign attribute on non-namespace object");
  budget.take_memory(sizeof(Value));
  space->set(*this, target.attribute, std::move(value));
}

Value Runtime::call_macro(const MacroDef& macro, const ScopePtr& defined_in, Args& args) {
  Level level(*this);
  ScopePtr scope = inner(defined_in);
  size_t count = macro.parameters.size();
  size_t first_default = count - macro.defaults.size();
  auto take_named = [&](std::string_view name) {
    budget.spend(static_cast<int64_t>(args.named.size() / 8));
    for (size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first != name) continue;
      Value v = std::move(args.named[i].second);
      args.named.erase(args.named.begin() + static_cast<ptrdiff_t>(i));
      return v;
    }
    return Value::absent();
  };
  std::vector<Value> given(count, Value::absent());
  for (size_t i = 0; i < count; ++i) {
    given[i] = i < args.positional.size() ? args.positional[i] : take_named(macro.parameter_names[i]);
  }
  if (macro.caller >= 0) {
    Value caller = take_named("caller");
    scope->set(macro.caller, caller.is_absent() ? undefined(Missing::hint, Value(), "No caller defined") : caller);
  }
  if (macro.kwargs >= 0) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : args.named) rest.emplace_back(string(name), std::move(value));
    scope->set(macro.kwargs, dict(std::move(rest)));
  } else if (!args.named.empty()) {
    fail(fmt::format("macro {} takes no keyword argument {}", quote(macro.name), quote(args.named[0].first)));
  }
  if (macro.varargs >= 0) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope->set(macro.varargs, tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    fail(fmt::format("macro {} takes not more than {} argument(s)", quote(macro.name), count));
  }
  for (size_t i = 0; i < count; ++i) {
    Value v = std::move(given[i]);
    if (v.is_absent()) {
      v = i >= first_default ? eval(*macro.defaults[i - first_default], scope)
                             : undefined(Missing::hint, Value(),
                                         fmt::format("parameter {} was not provided", quote(macro.parameter_names[i])));
    }
    budget.spend(1 + static_cast<int64_t>(scope->variables.size() / 16));
    scope->set(macro.parameters[i], std::move(v));
  }
  std::string out;
  execute(macro.body, scope, out);
  return string(std::move(out));
}

}  // namespace millrace::jinja
