// Reads one line of a trace as a JSON object. Types and bounds of fields are checked; errors name file, line and field.
#pragma once

#include <initializer_list>

#include "base/ordered_json.h"
#include "workload/trace_format.h"

namespace millrace {

using Json = nlohmann::json;

// Returns true if the text is an object with all these keys; used to recognize formats.
bool is_object_with(std::string_view text, std::initializer_list<const char*> keys);

Result<Json> parse_json_line(const TraceLine& line);

// Return field `key` of `object`. `what`: text before the field's name in errors, such as "requests[3].".
Result<int64_t> json_integer(const TraceLine& line, const Json& object, const char* key, int64_t min, int64_t max,
                             const std::string& what = "");
Result<double> json_number(const TraceLine& line, const Json& object, const char* key, double min, double max,
                           const std::string& what = "");
Result<std::string> json_text(const TraceLine& line, const Json& object, const char* key, const std::string& what = "");

}  // namespace millrace
