// Parses untrusted JSON with bounded size and depth and without exceptions; errors name the file. nlohmann::json parses
// without recursion, but copies and prints recursively, so depth must be limited.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

struct JsonLimits {
  size_t bytes = size_t{4} << 20;
  size_t depth = 64;
  size_t keys = 4096;  // maximum per object; limited because an ordered object is searched key by key
  bool refuse_duplicates = false;
  bool may_be_list = false;  // true: a list is accepted in place of the object
};

// Checks that `text` is an object, or a list if `may_be_list`, within `limits`. Errors: corrupt; the message has
// `file`, the offset and the reason.
Result<void> check_json_object(std::string_view text, const std::string& file, const JsonLimits& limits);

// Calls check_json_object(), then parses the text.
Result<nlohmann::ordered_json> parse_json_object(std::string_view text, const std::string& file,
                                                 const JsonLimits& limits = {});

}  // namespace millrace
