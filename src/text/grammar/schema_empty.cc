// Decides whether two schemas certainly exclude each other. "No" is always a safe answer, and is given in hard cases.
#include <algorithm>

#include "text/grammar/schema_compiler.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 3;
constexpr int64_t kMaxProbes = 20'000;

}  // namespace

bool SchemaCompiler::surely_empty(const SchemaConjunction& all, int depth) {
  if (depth > kMaxDepth || ++probes_ > kMaxProbes) return false;
  const auto alternatives = probe_.flatten(all);
  return alternatives.ok() && std::ranges::all_of(*alternatives, [&](const FlatSchema& parts) {
           return surely_empty_alternative(parts, depth);
         });
}

bool SchemaCompiler::surely_empty_alternative(const FlatSchema& parts, int depth) {
  const auto found = merge_schema(parts, document_, probe_notes_);
  if (!found.ok()) return false;
  const MergedSchema& merged = *found;
  if (merged.values) {
    return std::ranges::none_of(*merged.values, [&](const SchemaJson& value) {
      const auto allowed = allows_value(merged, value, limits_);
      return !allowed.ok() || *allowed;
    });
  }
  if (merged.types & (kNull | kBoolean)) return false;  // ignoring `excluded`
  if (merged.types & (kInteger | kFraction)) {
    if (merged.numbers.free()) return false;
    const auto numbers = number_dfa(merged.numbers, limits_, merged.path);
    if (!numbers.ok() || !numbers->empty()) return false;
  }
  if (merged.types & kString) {
    if (merged.strings.min_length <= merged.strings.max_length && merged.strings.lengths_only()) return false;
    if (merged.strings.min_length <= merged.strings.max_length) {
      const auto strings = string_dfa(merged.strings, limits_, merged.path);
      if (!strings.ok() || !strings->empty()) return false;
    }
  }
  if ((merged.types & kArray) && !surely_no_array(parts, merged, depth)) return false;
  return !(merged.types & kObject) || surely_no_object(parts, merged, depth);
}

bool SchemaCompiler::surely_no_object(const FlatSchema& parts, const MergedSchema& merged, int depth) {
  if (merged.min_properties > merged.max_properties || merged.required.size() > merged.max_properties) return true;
  return std::ranges::any_of(merged.required, [&](const std::string& name) {
    const auto allowed = key_allowed(parts, name);
    if (allowed.ok() && !*allowed) return true;
    const auto values = values_of_key(parts, name);
    return values.ok() && !values->empty() && surely_empty(*values, depth + 1);
  });
}

bool SchemaCompiler::surely_no_array(const FlatSchema& parts, const MergedSchema& merged, int depth) {
  if (merged.min_items > merged.max_items) return true;
  const auto shape = array_shape(parts, merged);
  if (!shape.ok()) return false;
  for (size_t i = 0; i < std::min<size_t>(shape->prefix.size(), merged.min_items); ++i)
    if (surely_empty(shape->prefix[i], depth + 1)) return true;
  return merged.min_items > shape->prefix.size() && !shape->items.empty() && surely_empty(shape->items, depth + 1);
}

}  // namespace millrace
