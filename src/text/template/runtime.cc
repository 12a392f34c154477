#include "text/template/runtime.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/objects.h"
#include "text/template/operators.h"
#include "text/template/printing.h"

namespace millrace::jinja {
namespace {

int32_t depth_of(const Value& v) {
  if (v.is_sequence()) return v.sequence().depth;
  if (v.is_dict()) return v.dict().depth;
  return 0;
}

void check_depth(int32_t depth) {
  if (depth > kMaxValueDepth) {
    fail_resource(fmt::format("a value is nested too deeply, at most {} levels", kMaxValueDepth));
  }
}

}  // namespace

const Value* Scope::find(int name) const {
  for (const auto& [n, v] : variables) {
    if (n == name) return &v;
  }
  return nullptr;
}

void Scope::set(int name, Value value) {
  if (const Value* old = find(name)) {
    *const_cast<Value*>(old) = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Runtime::Runtime(const Ast& ast, const TemplateLimits& limits, const RenderOptions& options)
    : ast_(ast), limits_(limits), options_(options) {
  budget.steps = limits.steps;
  budget.memory = limits.memory_bytes;
  budget.string_bytes = limits.output_bytes;
  budget.cancelled = options.cancelled;
  budget.until = options.until;
  root_.resize(ast.names.size());
}

Runtime::~Runtime() = default;

void Runtime::too_deep() const {
  fail_resource(fmt::format("the template recurses too deeply, at most {} levels", limits_.depth));
}

std::string Runtime::render(const nlohmann::ordered_json& context) {
  if (context.is_object()) {
    // Only variables that the template mentions are converted.
    root_values_.reserve(ast_.names.size());
    for (size_t i = 0; i < ast_.names.size(); ++i) {
      auto it = context.find(ast_.names[i]);
      if (it == context.end()) continue;
      root_values_.push_back(from_json(*it, 0));
      root_[i] = &root_values_.back();
    }
  } else if (!context.is_null()) {
    fail("the context of a chat template must be a JSON object");
  }
  std::string out;
  auto scope = std::make_shared<Scope>();
  execute(ast_.body, scope, out);
  return out;
}

Value Runtime::string(std::string text, bool markup) {
  budget.check_string(text.size());
  size_t bytes = sizeof(StringObject) + text.capacity();
  budget.take_memory(bytes);
  auto s = std::make_unique<StringObject>();
  s->budget = &budget;
  s->bytes = static_cast<int64_t>(bytes);
  s->text = std::move(text);
  s->markup = markup;
  return Value::of(s.release(), Kind::string);
}

Value Runtime::finish_sequence(std::unique_ptr<SequenceObject> s) {
  for (const Value& v : s->items) s->depth = std::max(s->depth, depth_of(v) + 1);
  check_depth(s->depth);
  size_t bytes = sizeof(SequenceObject) + s->items.capacity() * sizeof(Value);
  budget.take_memory(bytes);
  s->budget = &budget;
  s->bytes = static_cast<int64_t>(bytes);
  return Value::of(s.release(), Kind::sequence);
}

Value Runtime::sequence(std::vector<Value> items, SequenceType type) {
  auto s = std::make_unique<SequenceObject>();
  s->type = type;
  s->items = std::move(items);
  return finish_sequence(std::move(s));
}

Value Runtime::generator(std::vector<Value> items, const char* name) {
  Value v = sequence(std::move(items), SequenceType::generator);
  v.sequence().name = name;
  return v;
}

Value Runtime::dict(std::vector<std::pair<Value, Value>> items) {
  auto d = std::make_unique<DictObject>();
  d->items = std::move(items);
  for (const auto& [key, value] : d->items) d->depth = std::max(d->depth, std::max(depth_of(value), depth_of(key)) + 1);
  check_depth(d->depth);
  size_t bytes = sizeof(DictObject) + d->items.capacity() * sizeof(std::pair<Value, Value>);
  budget.take_memory(bytes);
  d->budget = &budget;
  d->bytes = static_cast<int64_t>(bytes);
  return Value::of(d.release(), Kind::dict);
}

Value Runtime::from_json(const nlohmann::ordered_json& j, int depth) {
  check_depth(depth);
  budget.spend(1);
  using Type = nlohmann::ordered_json::value_t;
  switch (j.type()) {
    case Type::boolean: return Value::boolean(j.get<bool>());
    case Type::number_integer: return Value::integer(j.get<int64_t>());
    case Type::number_unsigned: return Value::integer(j.get<uint64_t>());
    case Type::number_float: return Value::floating(j.get<double>());
    case Type::string: {
      const auto& text = j.get_ref<const std::string&>();
      budget.spend_bytes(text.size());
      return string(text);
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(j.size());
      for (const auto& item : j) items.push_back(from_json(item, depth + 1));
      return sequence(std::move(items));
    }
    case Type::object: {
      std::vector<std::pair<Value, Value>> items;
      items.reserve(j.size());
      for (const auto& [key, value] : j.items()) items.emplace_back(string(key), from_json(value, depth + 1));
      return dict(std::move(items));
    }
    default: return Value();
  }
}

Value Runtime::undefined(Missing missing, const Value& owner, std::string what) {
  Value name = string(std::move(what));
  return Value::undefined(missing, type_name(owner), name.string());
}

std::vector<Value> Runtime::iterate(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
      if (v.is_unsafe()) fail(v.undefined_message());
      return {};
    case Kind::string: {
      budget.spend(static_cast<int64_t>(v.text().size()));
      std::vector<Value> out;
      for (std::string_view letter : split_code_points(v.text())) out.push_back(string(std::string(letter)));
      return out;
    }
    case Kind::sequence: {
      SequenceObject& s = v.sequence();
      budget.spend(static_cast<int64_t>(s.items.size()));
      if (s.type != SequenceType::generator) return s.items;
      std::vector<Value> out(s.items.begin() + static_cast<ptrdiff_t>(std::min(s.next, s.items.size())), s.items.end());
      s.next = s.items.size();
      return out;
    }
    case Kind::dict: {
      budget.spend(static_cast<int64_t>(v.dict().items.size()));
      std::vector<Value> out;
      for (const auto& [key, value] : v.dict().items) out.push_back(key);
      return out;
    }
    default: fail(fmt::format("'{}' object is not iterable", type_name(v)));
  }
}

Int Runtime::length(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: budget.spend_bytes(v.text().size()); return static_cast<Int>(count_code_points(v.text()));
    case Kind::dict: return static_cast<Int>(v.dict().items.size());
    case Kind::sequence:
      if (v.sequence().type != SequenceType::generator) return static_cast<Int>(v.sequence().items.size());
      break;
    default: break;
  }
  fail(fmt::format("object of type '{}' has no len()", type_name(v)));
}

Value Runtime::attribute(const Value& v, std::string_view name) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is(Kind::object)) {
    if (name.substr(0, 1) == "_") return undefined(Missing::unsafe, v, std::string(name));
    Value found = v.object()->attribute(*this, name);
    if (!found.is_absent()) return found;
  } else if (is_mutating_method(v, name)) {
    return undefined(Missing::unsafe, v, std::string(name));
  } else if (const Native* method = find_method(v, name)) {
    return Value::object(object<BoundNative>(*method, v));
  } else if (v.is_sequence() && v.sequence().type == SequenceType::group && (name == "grouper" || name == "list")) {
    return v.sequence().items[name == "list"];
  }
  if (v.is_dict()) {
    if (const Value* found = v.dict().find(name, budget)) return *found;
  }
  return undefined(Missing::attribute, v, std::string(name));
}

Value Runtime::item(const Value& v, const Value& key) {
  if (v.is_undefined()) fail(v.undefined_message());
  if (v.is_dict() && !key.is_undefined()) {
    if (key.is_dict() || (key.is_sequence() && key.sequence().type == SequenceType::list)) {
      return undefined(Missing::element, v, repr(*this, key));
    }
    if (const Value* found = v.dict().find(key, budget)) return *found;
  } else if (key.is_integral()) {
    Int i = key.as_int();
    if (v.is_string()) {
      budget.spend_bytes(v.text().size() * 4);
      auto letters = split_code_points(v.text());
      auto n = static_cast<Int>(letters.size());
      if (i < 0) i += n;
      if (i >= 0 && i < n) return string(std::string(letters[static_cast<size_t>(i)]), v.string()->markup);
    } else if (v.is_sequence() && v.sequence().type != SequenceType::generator &&
               v.sequence().type != SequenceType::keys && v.sequence().type != SequenceType::values &&
               v.sequence().type != SequenceType::items) {
      const auto& items = v.sequence().items;
      auto n = static_cast<Int>(items.size());
      if (i < 0) i += n;
      if (i >= 0 && i < n) return items[static_cast<size_t>(i)];
    }
  }
  if (key.is_string()) {
    if (v.is_dict()) {  // not a key: try a method
      if (is_mutating_method(v, key.text())) return undefined(Missing::unsafe, v, std::string(key.text()));
      if (const Native* method = find_method(v, key.text())) return Value::object(object<BoundNative>(*method, v));
      return undefined(Missing::attribute, v, std::string(key.text()));
    }
    return attribute(v, key.text());
  }
  return undefined(Missing::element, v, repr(*this, key));
}

Value Runtime::call(const Value& callee, Args& args) {
  budget.spend(1);
  Level level(*this);
  if (callee.is_undefined()) fail(callee.undefined_message());
  if (!callee.is(Kind::object)) fail(fmt::format("'{}' object is not callable", type_name(callee)));
  return callee.object()->call(*this, args);
}

Value Runtime::apply_filter(std::string_view name, const Value& v, Args& args) {
  const Native* filter = find_filter(name);
  if (!filter) fail(fmt::format("No filter named '{}' found.", name));
  budget.spend(1);
  Level level(*this);
  return call_native(*this, *filter, v, args);
}

bool Runtime::apply_test(std::string_view name, const Value& v, Args& args) {
  const Native* test = find_test(name);
  if (!test) fail(fmt::format("No test named '{}' found.", name));
  budget.spend(1);
  Level level(*this);
  return truthy(call_native(*this, *test, v, args));
}

void Runtime::write(std::string_view text, std::string& out) {
  budget.spend_bytes(text.size());
  if (out.size() + text.size() > static_cast<size_t>(limits_.output_bytes)) {
    fail_resource(fmt::format("the rendered text is too long, at most {} bytes", limits_.output_bytes));
  }
  out += text;
}

}  // namespace millrace::jinja
