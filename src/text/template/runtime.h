// Runtime: the state of one render (scopes, the arena of objects, the budget) and the interpreter of the tree.
//
// Scoping follows Jinja2. A `set` inside a for loop, a macro, a with or a set block is local to that block; `if` has no
// scope. A loop starts each iteration with a new scope.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/ast.h"
#include "text/template/chat_template.h"
#include "text/template/value.h"

namespace millrace::jinja {

struct Scope {
  std::vector<std::pair<int, Value>> variables;  // pairs of a name's number and a value
  std::shared_ptr<Scope> parent;

  const Value* find(int name) const;  // searches this scope only; null: absent
  void set(int name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

class Runtime {
 public:
  Runtime(const Ast& ast, const TemplateLimits& limits, const RenderOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  std::string render(const nlohmann::ordered_json& context);

  // Functions that create values.
  Value string(std::string text, bool markup = false);
  Value sequence(std::vector<Value> items, SequenceType type = SequenceType::list);
  Value tuple(std::vector<Value> items) { return sequence(std::move(items), SequenceType::tuple); }
  Value generator(std::vector<Value> items, const char* name = "generator");
  Value dict(std::vector<std::pair<Value, Value>> items);
  template <typename T, typename... A>
  T* object(A&&... args) {
    budget.take_memory(sizeof(T) + 32);
    auto owned = std::make_unique<T>(std::forward<A>(args)...);
    T* raw = owned.get();
    arena_.push_back(std::move(owned));
    return raw;
  }
  Value undefined(Missing missing, const Value& owner, std::string what);

  // Functions that use values.
  std::vector<Value> iterate(const Value& v);  // fails if `v` is not iterable; exhausts a generator
  Int length(const Value& v);
  Value attribute(const Value& v, std::string_view name);  // v.name
  Value item(const Value& v, const Value& key);            // v[key]
  Value call(const Value& callee, Args& args);
  Value apply_filter(std::string_view name, const Value& v, Args& args);
  bool apply_test(std::string_view name, const Value& v, Args& args);

  // Functions that evaluate expressions and execute statements.
  Value eval(const Expr& e, const ScopePtr& scope);
  enum class Flow { next, break_loop, continue_loop };
  Flow execute(const Body& body, const ScopePtr& scope, std::string& out);
  void run_loop(const Stmt& s, const std::vector<Value>& items, const ScopePtr& scope, int depth, std::string& out);
  Value call_macro(const MacroDef& macro, const ScopePtr& defined_in, Args& args);
  void write(std::string_view text, std::string& out);

  // Counts one level of recursion during its lifetime.
  struct Level {
    explicit Level(Runtime& rt) : runtime(rt) {
      if (++rt.depth_ > rt.limits_.depth) rt.too_deep();
    }
    ~Level() { --runtime.depth_; }
    Runtime& runtime;
  };

  Budget budget;
  int line = 0;  // line of the node being evaluated, for messages
  const RenderOptions& options() const { return options_; }
  const Ast& ast() const { return ast_; }

 private:
  [[noreturn]] void too_deep() const;
  Value from_json(const nlohmann::ordered_json& j, int depth);
  Value finish_sequence(std::unique_ptr<SequenceObject> s);
  Value lookup(const Expr& e, const ScopePtr& scope);
  Value eval_constructor(const Expr& e, const ScopePtr& scope);
  Value eval_compare(const Expr& e, const ScopePtr& scope);
  Value eval_concat(const Expr& e, const ScopePtr& scope);
  Value eval_slice(const Expr& e, const ScopePtr& scope);
  Value eval_filter(const Expr& e, const Value* piped, const ScopePtr& scope);
  Value eval_test(const Expr& e, const ScopePtr& scope);
  Value eval_call(const Expr& e, const ScopePtr& scope, const Value* caller);
  Args eval_arguments(const std::vector<Argument>& args, const ScopePtr& scope);
  Flow execute_one(const Stmt& s, const ScopePtr& scope, std::string& out);
  Flow execute_branch(const Stmt& s, const ScopePtr& scope, std::string& out);
  void execute_loop(const Stmt& s, const ScopePtr& scope, std::string& out);
  void execute_with(const Stmt& s, const ScopePtr& scope, std::string& out);
  Value filtered_body(const Stmt& s, const ScopePtr& scope);
  void assign(const Target& target, Value value, const ScopePtr& scope);

  const Ast& ast_;
  TemplateLimits limits_;
  RenderOptions options_;
  int64_t depth_ = 0;
  std::vector<std::unique_ptr<Object>> arena_;
  std::vector<const Value*> root_;  // the context's variables, by number of the name
  std::vector<Value> root_values_;
};

}  // namespace millrace::jinja
