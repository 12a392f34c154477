#include "text/template/objects.h"

#include <fmt/format.h>

#include "text/template/operators.h"
#include "text/template/printing.h"

namespace millrace::jinja {
namespace {

Loop& as_loop(const Value& v) { return static_cast<Loop&>(*v.object()); }

Value loop_cycle(Runtime& rt, const Value& self, Args& args) {
  if (args.positional.empty()) fail("no items for cycling given");
  return args.positional[as_loop(self).index() % args.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, Args& args) {
  return Value::boolean(as_loop(self).changed(rt, args));
}

Value cycler_next(Runtime& rt, const Value& self, Args& args) { return static_cast<Cycler&>(*self.object()).next(); }

Value cycler_reset(Runtime& rt, const Value& self, Args& args) {
  static_cast<Cycler&>(*self.object()).reset();
  return Value();
}

constexpr Native kLoopCycle{"cycle", "", nullptr, loop_cycle};
constexpr Native kLoopChanged{"changed", "", nullptr, loop_changed};
constexpr Native kCyclerNext{"next", "", nullptr, cycler_next};
constexpr Native kCyclerReset{"reset", "", nullptr, cycler_reset};

}  // namespace

std::string Namespace::repr(Runtime& rt) const {
  std::vector<std::pair<Value, Value>> items;
  rt.budget.spend(static_cast<int64_t>(attributes_.size()));
  for (const auto& [key, value] : attributes_) items.emplace_back(rt.string(key), value);
  return "<Namespace " + jinja::repr(rt, rt.dict(std::move(items))) + ">";
}

Value Namespace::attribute(Runtime& rt, std::string_view name) {
  rt.budget.spend(1 + static_cast<int64_t>(attributes_.size() / 8));
  for (const auto& [key, value] : attributes_) {
    if (key == name) return value;
  }
  return Value::absent();
}

void Namespace::set(Runtime& rt, std::string_view name, Value value) {
  rt.budget.spend(static_cast<int64_t>(attributes_.size() / 8));
  for (auto& [key, old] : attributes_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes_.emplace_back(std::string(name), std::move(value));
}

std::string BoundNative::repr(Runtime& rt) const { return fmt::format("<built-in method {}>", native_.name); }

std::string Macro::repr(Runtime& rt) const { return fmt::format("<Macro {}>", quote(def_.name)); }

Value Macro::attribute(Runtime& rt, std::string_view name) {
  if (name == "name") return rt.string(def_.name);
  if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& p : def_.parameter_names) names.push_back(rt.string(p));
    return rt.tuple(std::move(names));
  }
  if (name == "caller") return Value::boolean(def_.caller >= 0);
  if (name == "catch_kwargs") return Value::boolean(def_.kwargs >= 0);
  if (name == "catch_varargs") return Value::boolean(def_.varargs >= 0);
  return Value::absent();
}

std::string Loop::repr(Runtime& rt) const { return fmt::format("<LoopContext {}/{}>", index_ + 1, size_); }

Value Loop::call(Runtime& rt, Args& args) {
  if (!stmt_.recursive) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.named.empty()) fail("loop() takes exactly one argument");
  std::string out;
  rt.run_loop(stmt_, rt.iterate(args.positional[0]), outer_, depth_ + 1, out);
  return rt.string(std::move(out));
}

Value Loop::attribute(Runtime& rt, std::string_view name) {
  auto number = [](size_t n) { return Value::integer(static_cast<Int>(n)); };
  if (name == "index") return number(index_ + 1);
  if (name == "index0") return number(index_);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(index_ + 1 == size_);
  if (name == "length") return number(size_);
  if (name == "revindex") return number(size_ - index_);
  if (name == "revindex0") return number(size_ - index_ - 1);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") {
    if (items_ && index_ > 0) return (*items_)[index_ - 1];
    return rt.undefined(Missing::hint, Value(), "there is no previous item");
  }
  if (name == "nextitem") {
    if (items_ && index_ + 1 < size_) return (*items_)[index_ + 1];
    return rt.undefined(Missing::hint, Value(), "there is no next item");
  }
  if (name == "cycle") return Value::object(rt.object<BoundNative>(kLoopCycle, Value::object(this)));
  if (name == "changed") return Value::object(rt.object<BoundNative>(kLoopChanged, Value::object(this)));
  return Value::absent();
}

bool Loop::changed(Runtime& rt, Args& args) {
  Value now = rt.tuple(std::move(args.positional));
  if (has_last_ && equals(last_, now, rt.budget)) return false;
  has_last_ = true;
  last_ = std::move(now);
  return true;
}

std::string Cycler::repr(Runtime& rt) const { return "<Cycler>"; }

Value Cycler::attribute(Runtime& rt, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name == "next") return Value::object(rt.object<BoundNative>(kCyclerNext, Value::object(this)));
  if (name == "reset") return Value::object(rt.object<BoundNative>(kCyclerReset, Value::object(this)));
  return Value::absent();
}

Value Cycler::next() {
  Value v = items_[at_];
  at_ = (at_ + 1) % items_.size();
  return v;
}

std::string Joiner::repr(Runtime& rt) const { return "<Joiner>"; }

Value Joiner::call(Runtime& rt, Args& args) {
  if (!used_) {
    used_ = true;
    return rt.string("");
  }
  return separator_;
}

}  // namespace millrace::jinja
