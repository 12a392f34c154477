// The built-in global functions.
#include <fmt/format.h>

#include <ctime>

#include "text/template/natives.h"
#include "text/template/objects.h"
#include "text/template/operators.h"
#include "text/template/printing.h"

namespace millrace::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // the sandbox's limit

Value range(Runtime& rt, const Value&, Args& args) {
  const auto& a = args.positional;
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  if (a.empty() || a.size() > 3) fail(fmt::format("range expected 1 to 3 arguments, got {}", a.size()));
  Int start = a.size() == 1 ? 0 : int_arg(a[0], "range");
  Int stop = int_arg(a[a.size() == 1 ? 0 : 1], "range");
  Int step = a.size() == 3 ? int_arg(a[2], "range") : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  constexpr Int kFar = Int{1} << 100;
  if (start > kFar || start < -kFar || stop > kFar || stop < -kFar || step > kFar || step < -kFar) {
    fail("range() arguments are too large");
  }
  Int count = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                       : (start > stop ? (start - stop - 1) / -step + 1 : 0);
  if (count > kMaxRange) {
    fail_resource(
        fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", to_string(kMaxRange)));
  }
  rt.budget.spend(static_cast<int64_t>(count));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (Int i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  Value v = rt.sequence(std::move(items), SequenceType::range);
  v.sequence().start = start;
  v.sequence().stop = stop;
  v.sequence().step = step;
  return v;
}

// dict(mapping or pairs, **named)
std::vector<std::pair<Value, Value>> pairs_of(Runtime& rt, const char* what, Args& args) {
  if (args.positional.size() > 1) {
    fail(fmt::format("{} expected at most 1 argument, got {}", what, args.positional.size()));
  }
  DictObject made;
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_dict()) {
      rt.budget.spend(static_cast<int64_t>(from.dict().items.size()));
      made.items = from.dict().items;
    } else {
      for (const Value& pair : rt.iterate(from)) {
        std::vector<Value> two = rt.iterate(pair);
        if (two.size() != 2) fail(fmt::format("{}: each element must be a pair", what));
        check_hashable(two[0], rt.budget);
        made.set(two[0], two[1], rt.budget);
      }
    }
  }
  for (auto& [name, value] : args.named) made.set(rt.string(name), std::move(value), rt.budget);
  return std::move(made.items);
}

Value make_dict(Runtime& rt, const Value&, Args& args) { return rt.dict(pairs_of(rt, "dict", args)); }

Value make_namespace(Runtime& rt, const Value&, Args& args) {
  auto* space = rt.object<Namespace>();
  for (auto& [key, value] : pairs_of(rt, "namespace", args)) space->set(rt, str(rt, key), std::move(value));
  return Value::object(space);
}

Value make_cycler(Runtime& rt, const Value&, Args& args) {
  if (args.positional.empty()) fail("at least one item has to be provided");
  return Value::object(rt.object<Cycler>(std::move(args.positional)));
}

Value make_joiner(Runtime& rt, const Value&, std::span<const Value> a) {
  return Value::object(rt.object<Joiner>(a[0].is_absent() ? rt.string(", ") : a[0]));
}

Value raise_exception(Runtime& rt, const Value&, std::span<const Value> a) { fail(str(rt, a[0])); }

Value strftime_now(Runtime& rt, const Value&, std::span<const Value> a) {
  std::string format(text_arg(a[0], "strftime_now"));
  if (format.size() > 4096) fail_resource("strftime_now: the format is too long");
  std::time_t now =
      rt.options().now_unix_seconds ? static_cast<std::time_t>(*rt.options().now_unix_seconds) : std::time(nullptr);
  std::tm parts{};
  bool ok = rt.options().now_unix_seconds ? gmtime_r(&now, &parts) != nullptr : localtime_r(&now, &parts) != nullptr;
  if (!ok) fail("strftime_now: the clock is out of range");
  if (format.empty()) return rt.string("");
  // Python adds %f, microseconds. Widths such as %1000d are rejected: they would let a short format make a long text.
  std::string checked;
  for (size_t i = 0; i < format.size(); ++i) {
    checked += format[i];
    if (format[i] != '%' || i + 1 >= format.size()) continue;
    char next = format[i + 1];
    if (next == 'f') {
      checked.pop_back();
      checked += "000000";
      ++i;
    } else if (next >= '0' && next <= '9') {
      fail("strftime_now: widths are not supported");
    } else {
      checked += next;
      ++i;
    }
  }
  std::string out(checked.size() * 64 + 256, '\0');
  size_t n = std::strftime(out.data(), out.size(), checked.c_str(), &parts);
  out.resize(n);
  rt.budget.spend_bytes(out.size());
  return rt.string(std::move(out));
}

constexpr Native kGlobals[] = {
    {"cycler", "", nullptr, make_cycler},
    {"dict", "", nullptr, make_dict},
    {"joiner", "sep?", make_joiner},
    {"namespace", "", nullptr, make_namespace},
    {"raise_exception", "message", raise_exception},
    {"range", "", nullptr, range},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Native* find_global(std::string_view name) {
  for (const Native& n : kGlobals) {
    if (n.name == name) return &n;
  }
  return nullptr;
}

}  // namespace millrace::jinja
