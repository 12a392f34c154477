// Parses untrusted JSON: bounded in size and depth, names the file in errors, no exceptions. nlohmann::json parses
// without recursion, but copying and printing recurse; hence the depth limit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

struct JsonLimits {
  size_t bytes = size_t{4} << 20;
  size_t depth = 64;
  size_t keys = 4096;  // per object; an ordered object is searched key by key
  bool refuse_duplicates = false;
};

// Checks that `text` is an object within `limits`. Errors: corrupt, with `file`, the offset and the reason.
Result<void> check_json_object(std::string_view text, const std::string& file, const JsonLimits& limits);

// Checks the text likewise, then parses it.
Result<nlohmann::ordered_json> parse_json_object(std::string_view text, const std::string& file,
                                                 const JsonLimits& limits = {});

}  // namespace millrace
