// MergedSchema: the combined requirements of all parts of one alternative, grouped by type of value.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "text/grammar/schema_flatten.h"
#include "text/grammar/schema_numbers.h"
#include "text/grammar/schema_strings.h"

namespace millrace {

struct MergedSchema {
  uint8_t types = kAllTypes;
  std::optional<std::vector<SchemaJson>> values;  // the only allowed values, from enum and const
  std::vector<SchemaJson> excluded;               // scalars that are not allowed
  NumberBounds numbers;
  StringBounds strings;
  uint32_t min_items = 0, max_items = kNoLimit, min_properties = 0, max_properties = kNoLimit;
  bool unique_items = false;
  std::vector<std::string> required;
  std::string path;                                     // path of the first part, for messages
  mutable std::shared_ptr<const Dfa> string_automaton;  // automaton of `strings`, built lazily by allows_value()
};

// Errors: user (an invalid value of a keyword), unsupported (a keyword; the message has its place).
Result<MergedSchema> merge_schema(const FlatSchema& parts, const SchemaDocument& document, GrammarNotes& notes);

// Returns true if a value of enum or const satisfies the other keywords. If it is a list or an object, only its type
// and size are checked. Errors: unsupported (a pattern, too many states).
Result<bool> allows_value(const MergedSchema& schema, const SchemaJson& value, const GrammarLimits& limits);

}  // namespace millrace
