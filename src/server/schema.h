// What a request's body may hold: every field of every endpoint is declared once, with type, bounds, default and meaning.
// Validation, docs/api.md and /openapi.json come from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "server/api_error.h"
#include "server/ask.h"

namespace millrace {

// A field may have several types. Numbers without a fraction are integers too.
enum JsonTypes : unsigned {
  kBoolean = 1,
  kInteger = 2,
  kNumber = 4,
  kText = 8,
  kTexts = 16,       // array of strings
  kTokens = 32,      // array of token ids
  kTokenLists = 64,  // array of such arrays
  kObject = 128,
  kList = 256,       // array of anything
};

struct Field {
  std::string name;
  unsigned types = 0;
  std::string default_value;   // for the docs
  std::string help;
  // Null: checked only; the endpoint reads it from the body, or it has no effect.
  std::function<std::optional<ApiError>(const Json&, Ask&)> set = nullptr;
  double min = -1e300, max = 1e300;    // of numbers
  size_t most = size_t{1} << 20;       // of a list's items, or an object's keys
  bool required = false;
  std::vector<std::string> choices;    // of a text; empty: any
  std::vector<Field> fields;           // of an object
  // A field of the API that is not there: given with a value for which this is false, the request is refused.
  bool (*harmless)(const Json&) = nullptr;
};

// `body` is an object; null fields are dropped from it. Fields that no schema names are let through.
std::optional<ApiError> read_fields(const std::vector<Field>& fields, Json& body, Ask& ask, const std::string& where = "");

// Bytes to an object within the limits of depth and size.
std::optional<ApiError> parse_body(const std::string& bytes, Json* body);

// "integer or array of strings"
std::string type_names(unsigned types);

// The sampling option `option` under the name that an API has for it: bounds and help are its schema's.
Field sampling_field(const std::string& name, const std::string& option);
Field unsupported_field(const std::string& name, bool (*harmless)(const Json&));
std::vector<Field> joined(std::initializer_list<std::vector<Field>> parts);

}  // namespace millrace
