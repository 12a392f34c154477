// Template values that are not plain data: namespaces, callables, the loop variable.
#pragma once

#include <string>
#include <vector>

#include "text/template/natives.h"
#include "text/template/runtime.h"

namespace millrace::jinja {

// namespace(): the only object whose attributes `set` may modify.
class Namespace final : public Object {
 public:
  const char* type_name() const override { return "Namespace"; }
  std::string repr(Runtime& rt) const override;
  Value attribute(Runtime& rt, std::string_view name) override;
  void set(Runtime& rt, std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

// A filter, test or global function used as a value, or a method bound to the value it is called on.
class BoundNative final : public Object {
 public:
  BoundNative(const Native& native, Value self) : native_(native), self_(std::move(self)) {}
  const char* type_name() const override { return "builtin_function_or_method"; }
  std::string repr(Runtime& rt) const override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return call_native(rt, native_, self_, args); }

 private:
  const Native& native_;
  Value self_;
};

class Macro final : public Object {
 public:
  Macro(const MacroDef& def, ScopePtr scope) : def_(def), scope_(std::move(scope)) {}
  const char* type_name() const override { return "Macro"; }
  std::string repr(Runtime& rt) const override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override { return rt.call_macro(def_, scope_, args); }
  Value attribute(Runtime& rt, std::string_view name) override;

 private:
  const MacroDef& def_;
  ScopePtr scope_;
};

// The `loop` variable.
class Loop final : public Object {
 public:
  Loop(const Stmt& stmt, ScopePtr outer, const std::vector<Value>* items, int depth)
      : stmt_(stmt), outer_(std::move(outer)), items_(items), size_(items->size()), depth_(depth) {}
  const char* type_name() const override { return "LoopContext"; }
  std::string repr(Runtime& rt) const override;
  bool callable() const override { return stmt_.recursive; }
  Value call(Runtime& rt, Args& args) override;
  Value attribute(Runtime& rt, std::string_view name) override;
  void set_index(size_t i) { index_ = i; }
  void end() { items_ = nullptr; }
  bool changed(Runtime& rt, Args& args);
  size_t index() const { return index_; }

 private:
  const Stmt& stmt_;
  ScopePtr outer_;
  const std::vector<Value>* items_;  // null once the loop has ended
  size_t size_;
  size_t index_ = 0;
  int depth_;
  bool has_last_ = false;
  Value last_;
};

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  const char* type_name() const override { return "Cycler"; }
  std::string repr(Runtime& rt) const override;
  Value attribute(Runtime& rt, std::string_view name) override;
  Value next();
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  const char* type_name() const override { return "Joiner"; }
  std::string repr(Runtime& rt) const override;
  bool callable() const override { return true; }
  Value call(Runtime& rt, Args& args) override;

 private:
  Value separator_;
  bool used_ = false;
};

}  // namespace millrace::jinja
