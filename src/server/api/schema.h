// What a request's body may hold: every field that an endpoint's API knows is declared once, with type, bounds, default
// and meaning. It is implemented, refused by name, or accepted without effect with the reason why that does no harm.
// Validation, docs/api.md and /openapi.json come from it; tests/regressions/known_fields_test.cc compares it with the
// APIs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "server/api/api_error.h"
#include "server/generation/generation_request.h"

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
  kList = 256,  // array of anything
};

struct Field {
  std::string name;
  unsigned types = 0;
  std::string default_value;  // for the docs
  std::string help;
  // Null: checked only; the endpoint reads it from the body, or it has no effect.
  std::function<std::optional<ApiError>(const Json&, GenerationRequest&)> set = nullptr;
  double min = -1e300, max = 1e300;  // of numbers
  size_t most = size_t{1} << 20;     // of a list's items, or an object's keys
  bool required = false;
  std::vector<std::string> choices;  // of a text; empty: any
  std::vector<Field> fields;         // of an object
  std::vector<Field> items;          // of each object in a list
  // A field of the API that is not there: given with a value for which this is false, the request is refused.
  bool (*harmless)(const Json&) = nullptr;
  std::string no_effect = {};  // why a field that is accepted changes nothing; "": it does
};

// `body` is an object; null fields are dropped from it. Fields that no schema names are let through.
std::optional<ApiError> read_fields(const std::vector<Field>& fields, Json& body, GenerationRequest& ask,
                                    const std::string& where = "");

// Bytes to an object within the limits of depth and size.
std::optional<ApiError> parse_body(const std::string& bytes, Json* body);

// "integer or array of strings"
std::string type_names(unsigned types);

// The sampling option `option` under the name that an API has for it: bounds and help are its schema's.
Field sampling_field(const std::string& name, const std::string& option);
Field unsupported_field(const std::string& name, bool (*harmless)(const Json&));
Field ignored_field(const std::string& name, unsigned types, const std::string& why);
// An object of which all is said by its members.
Field object_field(const std::string& name, const std::string& help, std::vector<Field> fields);
std::vector<Field> joined(std::initializer_list<std::vector<Field>> parts);

}  // namespace millrace
