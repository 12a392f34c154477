// Filters that examine the items of a sequence: selection, sorting, grouping, aggregation.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/code_points.h"
#include "text/template/natives.h"
#include "text/template/operators.h"
#include "text/template/printing.h"
#include "text/template/runtime.h"

namespace millrace::jinja {
namespace {

using Bound = std::span<const Value>;

bool given(const Value& v) { return !v.is_absent() && !v.is_none(); }

// An attribute path: "a.b.0" looks up a, then b, then item 0. An integer is an item; an empty path is the value itself.
class Path {
 public:
  Path(Runtime& rt, const Value& path, const Value& otherwise = Value::absent()) : rt_(rt), otherwise_(otherwise) {
    if (!given(path)) return;
    if (path.is_integral()) {
      parts_.push_back(Value::integer(path.as_int()));
      return;
    }
    std::string_view text = text_arg(path, "attribute");
    rt.budget.spend_bytes(text.size());
    while (true) {
      size_t dot = text.find('.');
      std::string_view part = text.substr(0, dot);
      bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(number ? Value::integer(std::stoi(std::string(part))) : rt.string(std::string(part)));
      if (dot == std::string_view::npos) break;
      text.remove_prefix(dot + 1);
    }
  }

  Value of(const Value& v) const {
    Value at = v;
    for (const Value& part : parts_) {
      rt_.budget.spend(1);
      at = rt_.item(at, part);
      if (at.is_undefined() && !otherwise_.is_absent()) at = otherwise_;
    }
    return at;
  }

 private:
  Runtime& rt_;
  Value otherwise_;
  std::vector<Value> parts_;
};

Value fold_case(Runtime& rt, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  rt.budget.spend_bytes(v.text().size() * 4);
  return rt.string(to_lower(v.text()));
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Value> sorted(Runtime& rt, std::vector<Keyed> items, bool reverse) {
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    rt.budget.spend(1);
    return reverse ? less(b.key, a.key, rt.budget) : less(a.key, b.key, rt.budget);
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (Keyed& k : items) out.push_back(std::move(k.item));
  return out;
}

Value sort(Runtime& rt, const Value& v, Bound a) {
  bool case_sensitive = bool_arg(a[1], false);
  std::vector<Path> paths;
  if (a[2].is_string()) {  // several, separated by commas
    std::string_view text = a[2].text();
    rt.budget.spend_bytes(text.size());
    while (true) {
      size_t comma = text.find(',');
      paths.emplace_back(rt, rt.string(std::string(text.substr(0, comma))));
      if (comma == std::string_view::npos) break;
      text.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(rt, a[2]);
  }
  std::vector<Keyed> keyed;
  for (Value& item : rt.iterate(v)) {
    std::vector<Value> key;
    rt.budget.spend(static_cast<int64_t>(paths.size()));
    for (const Path& path : paths) key.push_back(fold_case(rt, path.of(item), case_sensitive));
    // A list even for a single key: equal elements without an order, such as none, may be compared inside lists.
    keyed.push_back({rt.sequence(std::move(key)), std::move(item)});
  }
  return rt.sequence(sorted(rt, std::move(keyed), bool_arg(a[0], false)));
}

Value dictsort(Runtime& rt, const Value& v, Bound a) {
  std::string by = a[1].is_absent() ? "key" : str(rt, a[1]);
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) fail(v.undefined_message());
  if (!v.is_dict()) fail(fmt::format("'{} object' has no attribute 'items'", type_name(v)));
  std::vector<Keyed> keyed;
  rt.budget.spend(static_cast<int64_t>(v.dict().items.size()));
  for (const auto& [key, value] : v.dict().items) {
    keyed.push_back({fold_case(rt, by == "key" ? key : value, bool_arg(a[0], false)), rt.tuple({key, value})});
  }
  return rt.sequence(sorted(rt, std::move(keyed), bool_arg(a[2], false)));
}

Value unique(Runtime& rt, const Value& v, Bound a) {
  Path path(rt, a[1]);
  std::vector<Value> seen, out;
  for (Value& item : rt.iterate(v)) {
    Value key = fold_case(rt, path.of(item), bool_arg(a[0], false));
    check_hashable(key, rt.budget);
    rt.budget.spend(static_cast<int64_t>(seen.size()));
    bool old = std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equals(s, key, rt.budget); });
    if (old) continue;
    seen.push_back(std::move(key));
    out.push_back(std::move(item));
  }
  return rt.generator(std::move(out));
}

template <bool Largest>
Value extreme(Runtime& rt, const Value& v, Bound a) {
  Path path(rt, a[1]);
  Value best = Value::absent(), best_key;
  for (Value& item : rt.iterate(v)) {
    Value key = fold_case(rt, path.of(item), bool_arg(a[0], false));
    bool better = best.is_absent() || (Largest ? less(best_key, key, rt.budget) : less(key, best_key, rt.budget));
    if (!better) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  if (best.is_absent()) return rt.undefined(Missing::hint, Value(), "No aggregated item, sequence was empty.");
  return best;
}

Value sum(Runtime& rt, const Value& v, Bound a) {
  Path path(rt, a[0]);
  Value total = a[1].is_absent() ? Value::integer(0) : a[1];
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : rt.iterate(v)) total = arithmetic(rt, Op::add, total, path.of(item));
  return total;
}

Value join(Runtime& rt, const Value& v, Bound a) {
  Path path(rt, a[1]);
  std::string separator = a[0].is_absent() ? "" : str(rt, a[0]);
  std::string out;
  bool begun = false;
  for (const Value& item : rt.iterate(v)) {
    if (begun) rt.write(separator, out);
    begun = true;
    rt.write(str(rt, path.of(item)), out);
  }
  return rt.string(std::move(out));
}

Value groupby(Runtime& rt, const Value& v, Bound a) {
  Path path(rt, a[0], a[1]);
  bool case_sensitive = bool_arg(a[2], false);
  std::vector<Keyed> keyed;
  for (Value& item : rt.iterate(v)) {
    keyed.push_back({fold_case(rt, path.of(item), case_sensitive), std::move(item)});
  }
  std::vector<Value> order = sorted(rt, std::move(keyed), false);
  std::vector<Value> out;
  for (size_t i = 0; i < order.size();) {
    Value key = fold_case(rt, path.of(order[i]), case_sensitive);
    Value name = path.of(order[i]);
    std::vector<Value> members;
    while (i < order.size() && equals(fold_case(rt, path.of(order[i]), case_sensitive), key, rt.budget)) {
      members.push_back(order[i++]);
    }
    if (members.empty()) members.push_back(order[i++]);  // a key that is not equal to itself
    out.push_back(rt.sequence({std::move(name), rt.sequence(std::move(members))}, SequenceType::group));
  }
  return rt.sequence(std::move(out));
}

Value map(Runtime& rt, const Value& v, Args& args) {
  std::vector<Value> out;
  if (!truthy(v)) return rt.generator({});  // none, too
  if (args.positional.empty() && !args.named.empty()) {
    Value attribute = Value::absent(), otherwise = Value::absent();
    for (auto& [name, value] : args.named) {
      if (name == "attribute")
        attribute = value;
      else if (name == "default")
        otherwise = value;
      else
        fail(fmt::format("Unexpected keyword argument '{}'", name));
    }
    if (attribute.is_absent()) fail("map requires a filter argument");
    Path path(rt, attribute, otherwise);
    for (const Value& item : rt.iterate(v)) out.push_back(path.of(item));
    return rt.generator(std::move(out));
  }
  if (args.positional.empty()) fail("map requires a filter argument");
  std::string name(text_arg(args.positional[0], "map"));
  for (const Value& item : rt.iterate(v)) {
    rt.budget.spend(static_cast<int64_t>(args.positional.size() + args.named.size()));
    Args inner = args;
    inner.positional.erase(inner.positional.begin());
    out.push_back(rt.apply_filter(name, item, inner));
  }
  return rt.generator(std::move(out));
}

template <bool Keep, bool ByAttribute>
Value choose(Runtime& rt, const Value& v, Args& args) {
  if (!truthy(v)) return rt.generator({});  // none, too
  size_t used = 0;
  Value path_value = Value::absent();
  if (ByAttribute) {
    if (args.positional.empty()) fail("Missing parameter for attribute name");
    path_value = args.positional[used++];
  }
  Path path(rt, path_value);
  std::string test;
  if (used < args.positional.size()) test = text_arg(args.positional[used++], "test name");
  std::vector<Value> out;
  for (Value& item : rt.iterate(v)) {
    Value subject = path.of(item);
    bool holds;
    if (test.empty()) {
      holds = truthy(subject);
    } else {
      Args inner;
      rt.budget.spend(static_cast<int64_t>(args.positional.size() + args.named.size()));
      inner.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(used), args.positional.end());
      inner.named = args.named;
      holds = rt.apply_test(test, subject, inner);
    }
    if (holds == Keep) out.push_back(std::move(item));
  }
  return rt.generator(std::move(out));
}

constexpr Native kSelectionFilters[] = {
    {"dictsort", "case_sensitive? by? reverse?", dictsort},
    {"groupby", "attribute default? case_sensitive?", groupby},
    {"join", "d? attribute?", join},
    {"map", "", nullptr, map},
    {"max", "case_sensitive? attribute?", extreme<true>},
    {"min", "case_sensitive? attribute?", extreme<false>},
    {"reject", "", nullptr, choose<false, false>},
    {"rejectattr", "", nullptr, choose<false, true>},
    {"select", "", nullptr, choose<true, false>},
    {"selectattr", "", nullptr, choose<true, true>},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"sum", "attribute? start?", sum},
    {"unique", "case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const Native> selection_filters() { return kSelectionFilters; }

}  // namespace millrace::jinja
