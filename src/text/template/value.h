// Values of the template language, with Python's semantics.
//
//   Value (32 bytes, copied freely)
//     none, boolean, integer (128 bit, overflow is an error), floating
//     undefined        result of a missing name or key, which it records for messages
//     string           StringObject, immutable, reference-counted
//     sequence         SequenceObject, immutable, reference-counted
//     dict             DictObject, immutable, reference-counted
//     object           Object: namespace, macro, loop, bound method ...; owned by the Runtime's arena
//     absent           an argument that the call omits; never visible to a template
//
// Immutable values cannot form cycles, and their nesting is limited on creation, so releasing a value has bounded
// recursion. Only namespaces are mutable; they exist in the arena until the render ends.
//
// Not thread-safe: values belong to one render. Constants of a parsed template are shared between renders; their
// reference count is frozen (kFrozen), so they are never written.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace::jinja {

using Int = __int128;

// The internal exception of the engine; ChatTemplate catches it and returns a Result.
struct Failure {
  ErrorKind kind = ErrorKind::corrupt;
  std::string message;
};
[[noreturn]] void fail(std::string message);           // an error in the template
[[noreturn]] void fail_resource(std::string message);  // a limit was reached

// The remaining resources of a render. They are charged before the work is done. The clock and the cancel flag are read
// once in kStepsPerLook steps.
struct Budget {
  int64_t steps = 0;
  int64_t memory = 0;
  int64_t string_bytes = 0;  // maximum length of a string

  const std::atomic<bool>* cancelled = nullptr;  // may be null
  std::optional<std::chrono::steady_clock::time_point> until;

  void spend(int64_t n) {
    if (n > steps) out_of_steps();
    steps -= n;
    if (steps < next_look_) look();
  }
  void spend_bytes(size_t n) { spend(1 + static_cast<int64_t>(n / 16)); }
  void take_memory(size_t n);
  void check_string(size_t bytes) const;  // fails if a string would be longer than string_bytes

 private:
  static constexpr int64_t kStepsPerLook = 4096;
  [[noreturn]] static void out_of_steps();
  void look();  // fails if the render was cancelled or its time is over

  int64_t next_look_ = INT64_MAX;
};

constexpr int32_t kFrozen = -1;
constexpr int32_t kMaxValueDepth = 200;

struct Counted {
  int32_t refs = 0;
  int32_t depth = 0;         // nesting below this value
  Budget* budget = nullptr;  // the destructor returns `bytes` to this budget
  int64_t bytes = 0;
  virtual ~Counted() {
    if (budget) budget->memory += bytes;
  }
};

struct StringObject;
struct SequenceObject;
struct DictObject;
class Object;

enum class Kind : uint8_t { absent, undefined, none, boolean, integer, floating, string, sequence, dict, object };

// Kind of lookup that returned an undefined value.
enum class Missing : uint8_t { variable, attribute, element, hint, unsafe };

class Value {
 public:
  Value() : kind_(Kind::none) {}
  Value(const Value& o) : kind_(o.kind_), missing_(o.missing_), owner_(o.owner_), data_(o.data_) { hold(); }
  Value(Value&& o) noexcept : kind_(o.kind_), missing_(o.missing_), owner_(o.owner_), data_(o.data_) {
    o.kind_ = Kind::none;
  }
  Value& operator=(Value o) noexcept {
    std::swap(kind_, o.kind_);
    std::swap(missing_, o.missing_);
    std::swap(owner_, o.owner_);
    std::swap(data_, o.data_);
    return *this;
  }
  ~Value() { release(); }

  static Value absent() { return Value(Kind::absent); }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.data_.i = b;
    return v;
  }
  static Value integer(Int i) {
    Value v(Kind::integer);
    v.data_.i = i;
    return v;
  }
  static Value floating(double d) {
    Value v(Kind::floating);
    v.data_.d = d;
    return v;
  }
  static Value object(Object* o) {
    Value v(Kind::object);
    v.data_.o = o;
    return v;
  }
  static Value of(Counted* counted, Kind kind);  // string, sequence or dict
  // `what`: the missing name; null: unknown. `owner`: a static type name.
  static Value undefined(Missing missing, const char* owner, StringObject* what);
  static Value undefined();

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_absent() const { return kind_ == Kind::absent; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_sequence() const { return kind_ == Kind::sequence; }
  bool is_dict() const { return kind_ == Kind::dict; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::floating; }

  bool as_bool() const { return data_.i != 0; }
  Int as_int() const { return data_.i; }  // integer or boolean
  double as_double() const { return kind_ == Kind::floating ? data_.d : static_cast<double>(data_.i); }
  std::string_view text() const;  // string
  StringObject* string() const;
  SequenceObject& sequence() const;
  DictObject& dict() const;
  Object* object() const { return data_.o; }
  const void* identity() const { return data_.c; }

  std::string undefined_message() const;
  bool is_unsafe() const { return is_undefined() && missing_ == Missing::unsafe; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  bool counted() const {
    return (kind_ >= Kind::string && kind_ <= Kind::dict) || (kind_ == Kind::undefined && data_.c != nullptr);
  }
  void hold() {
    if (counted() && data_.c->refs != kFrozen) ++data_.c->refs;
  }
  void release() {
    if (counted() && data_.c->refs != kFrozen && --data_.c->refs == 0) delete data_.c;
  }

  Kind kind_;
  Missing missing_ = Missing::variable;
  const char* owner_ = nullptr;
  union Data {
    Int i;
    double d;
    Counted* c;
    Object* o;
  } data_{};
};

struct StringObject final : Counted {
  std::string text;
  bool markup = false;  // result of the filter escape or safe, which is not escaped again
};

// A generator yields its items once and has no length; views are the results of dict.keys() etc.
enum class SequenceType : uint8_t { list, tuple, range, generator, keys, values, items, group };

struct SequenceObject final : Counted {
  SequenceType type = SequenceType::list;
  std::vector<Value> items;
  size_t next = 0;                    // generator: number of items consumed
  const char* name = "generator";     // generator: Python's type name
  Int start = 0, stop = 0, step = 1;  // range
};

struct DictObject final : Counted {
  std::vector<std::pair<Value, Value>> items;  // in insertion order

  const Value* find(std::string_view key, Budget& budget) const;
  const Value* find(const Value& key, Budget& budget) const;
  void set(const Value& key, Value value, Budget& budget);  // only during construction
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Runtime;

// A value with behaviour; see objects.h.
class Object {
 public:
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  virtual std::string repr(Runtime& rt) const = 0;
  virtual bool callable() const { return false; }
  virtual Value call(Runtime& rt, Args& args);
  // Returns absent if there is no such attribute.
  virtual Value attribute(Runtime& rt, std::string_view name) { return Value::absent(); }
};

const char* type_name(const Value& v);  // Python's: "str", "int", "NoneType" ...

}  // namespace millrace::jinja
