// The schema of request bodies. Every field of an API is declared once, with its type, bounds, default and help. A
// field is implemented, rejected by name, or ignored with a reason why that is harmless. Validation, docs/api.md and
// /openapi.json are generated from the schema; tests/regressions/known_fields_test.cc compares it with the APIs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

namespace millrace {

// A field may have several types. A number without a fraction also counts as an integer.
enum JsonTypes : unsigned {
  kJsonBoolean = 1,
  kJsonInteger = 2,
  kJsonNumber = 4,
  kJsonText = 8,
  kJsonTexts = 16,       // array of strings
  kJsonTokens = 32,      // array of token ids
  kJsonTokenLists = 64,  // array of such arrays
  kJsonObject = 128,
  kJsonList = 256,  // array of anything
};

struct Field {
  std::string name;
  unsigned types = 0;
  std::string default_value;  // for the docs
  std::string help;
  // Null: the field is only checked. The endpoint reads it from the body, or ignores it.
  std::function<std::optional<ApiError>(const Json&, GenerationRequest&)> set = nullptr;
  double min = -1e300, max = 1e300;  // for numbers
  size_t most = size_t{1} << 20;     // items of a list, or keys of an object
  bool required = false;
  std::vector<std::string> choices;  // for strings; empty: any
  std::vector<Field> fields;         // for an object
  bool closed = false;               // an object of ours: keys that `fields` does not list are refused
  std::vector<Field> items;          // for each object in a list
  // Set for unsupported fields: the request is rejected unless this returns true for the value.
  bool (*harmless)(const Json&) = nullptr;
  std::string no_effect = {};  // why an accepted field is ignored; "": it is not
  std::string unless = {};     // a field in whose presence a required one may be absent; "": none
};

// Validates `body`, which must be an object, and fills in `params`. Removes null fields; unknown fields are allowed.
std::optional<ApiError> read_fields(const std::vector<Field>& fields, Json& body, GenerationRequest& params,
                                    const std::string& where = "");

// Parses a JSON object within the limits of depth and size.
std::optional<ApiError> parse_body(const std::string& bytes, Json* body);

// "integer or array of strings"
std::string type_names(unsigned types);

// The sampling option `option` under an API's name for it, with bounds and help from the sampling schema.
Field sampling_field(const std::string& name, const std::string& option);
Field unsupported_field(const std::string& name, bool (*harmless)(const Json&));
Field ignored_field(const std::string& name, unsigned types, const std::string& why);
// An object that is fully described by its members.
Field object_field(const std::string& name, const std::string& help, std::vector<Field> fields);
std::vector<Field> joined(std::initializer_list<std::vector<Field>> parts);

}  // namespace millrace
