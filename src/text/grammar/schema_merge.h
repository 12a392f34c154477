// MergedSchema: what the parts of one alternative say together about each kind of value.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "text/grammar/schema_flatten.h"
#include "text/grammar/schema_numbers.h"
#include "text/grammar/schema_strings.h"

namespace millrace {

enum JsonType : uint8_t { kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32, kObject = 64, kAllTypes = 127 };

struct MergedSchema {
  uint8_t types = kAllTypes;
  std::optional<std::vector<SchemaJson>> values;  // of enum and const: only these
  std::vector<SchemaJson> excluded;
  NumberBounds numbers;
  StringBounds strings;
  uint32_t min_items = 0, max_items = kNoLimit, min_properties = 0, max_properties = kNoLimit;
  bool unique_items = false;
  std::vector<std::string> required;
  std::string path;  // of the first part, for messages
  mutable std::shared_ptr<const Dfa> string_automaton;  // of `strings`, once allows_value() has needed it
};

// Errors: user (a keyword's value), unsupported (a keyword, with its place).
Result<MergedSchema> merge_schema(const FlatSchema& parts, const SchemaDocument& document, std::vector<std::string>& notes);

// Whether a value of enum or const satisfies the other keywords. Errors: unsupported, where lists or objects meet them.
Result<bool> allows_value(const MergedSchema& schema, const SchemaJson& value, const GrammarLimits& limits);

}  // namespace millrace
