#include "text/template/value.h"

#include <fmt/format.h>

#include "text/template/operators.h"
#include "text/template/text_search.h"

namespace millrace::jinja {

void fail(std::string message) { throw Failure{ErrorKind::corrupt, std::move(message)}; }
void fail_resource(std::string message) { throw Failure{ErrorKind::resource, std::move(message)}; }

void Budget::out_of_steps() { fail_resource("the template takes too many steps (limit reached)"); }

void Budget::look() {
  next_look_ = steps - kStepsPerLook;
  if (cancelled && *cancelled) throw Failure{ErrorKind::cancelled, "the request was cancelled"};
  if (until && std::chrono::steady_clock::now() > *until) fail_resource("the template takes too long (limit reached)");
}

void Budget::take_memory(size_t n) {
  if (static_cast<int64_t>(n) > memory) fail_resource("the template needs too much memory (limit reached)");
  memory -= static_cast<int64_t>(n);
}

void Budget::check_string(size_t bytes) const {
  if (bytes > static_cast<size_t>(string_bytes)) {
    fail_resource(
        fmt::format("the template makes a string that is too long: {} bytes, at most {}", bytes, string_bytes));
  }
}

Value Value::of(Counted* counted, Kind kind) {
  Value v(kind);
  v.data_.c = counted;
  v.hold();
  return v;
}

Value Value::undefined(Missing missing, const char* owner, StringObject* what) {
  Value v(Kind::undefined);
  v.missing_ = missing;
  v.owner_ = owner;
  v.data_.c = what;
  v.hold();
  return v;
}

Value Value::undefined() { return undefined(Missing::hint, nullptr, nullptr); }

StringObject* Value::string() const { return static_cast<StringObject*>(data_.c); }
std::string_view Value::text() const { return string()->text; }
SequenceObject& Value::sequence() const { return *static_cast<SequenceObject*>(data_.c); }
DictObject& Value::dict() const { return *static_cast<DictObject*>(data_.c); }

std::string Value::undefined_message() const {
  std::string what = data_.c ? static_cast<StringObject*>(data_.c)->text : std::string();
  auto object_type = [&]() -> std::string {
    std::string owner = owner_ ? owner_ : "object";
    return owner == "NoneType" ? "None" : owner + " object";
  };
  switch (missing_) {
    case Missing::variable: return fmt::format("'{}' is undefined", what);
    case Missing::attribute: return fmt::format("'{}' has no attribute '{}'", object_type(), what);
    case Missing::element: return fmt::format("{} has no element {}", object_type(), what);
    case Missing::unsafe:
      return fmt::format("access to attribute '{}' of '{}' object is unsafe.", what, owner_ ? owner_ : "object");
    case Missing::hint: break;
  }
  return what.empty() ? "the value is undefined" : what;
}

// Charges for the keys that are compared as well as for the items that are passed.
const Value* DictObject::find(std::string_view key, Budget& b) const {
  b.spend(1 + static_cast<int64_t>(items.size() / 8));
  for (const auto& [k, v] : items) {
    if (k.is_string() && equal_texts(k.text(), key, b)) return &v;
  }
  return nullptr;
}

const Value* DictObject::find(const Value& key, Budget& b) const {
  if (key.is_string()) return find(key.text(), b);
  b.spend(1 + static_cast<int64_t>(items.size() / 8));
  for (const auto& [k, v] : items) {
    if (equals(k, key, b)) return &v;
  }
  return nullptr;
}

void DictObject::set(const Value& key, Value value, Budget& b) {
  if (const Value* old = find(key, b)) {
    *const_cast<Value*>(old) = std::move(value);
  } else {
    items.emplace_back(key, std::move(value));
  }
}

Value Object::call(Runtime& rt, Args& args) { fail(fmt::format("'{}' object is not callable", type_name())); }

const char* type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::absent:
    case Kind::none: return "NoneType";
    case Kind::undefined: return "Undefined";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::floating: return "float";
    case Kind::string: return v.string()->markup ? "Markup" : "str";
    case Kind::dict: return "dict";
    case Kind::object: return v.object()->type_name();
    case Kind::sequence: break;
  }
  switch (v.sequence().type) {
    case SequenceType::list: return "list";
    case SequenceType::tuple: return "tuple";
    case SequenceType::range: return "range";
    case SequenceType::generator: return v.sequence().name;
    case SequenceType::keys: return "dict_keys";
    case SequenceType::values: return "dict_values";
    case SequenceType::items: return "dict_items";
    case SequenceType::group: return "_GroupTuple";
  }
  return "object";
}

}  // namespace millrace::jinja
