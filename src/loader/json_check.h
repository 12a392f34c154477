// JSON from outside, parsed without surprises: bounded in size and depth, names the file in its errors, no exceptions.
// nlohmann::json parses without recursion, but copying and printing recurse; the depth bound is for them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

struct JsonLimits {
  size_t bytes = size_t{4} << 20;
  size_t depth = 64;
  size_t keys = 4096;  // of one object; an ordered object is searched key by key
  bool refuse_duplicates = false;
};

// `text` is an object within `limits`. Errors: corrupt, naming `file`, the offset and what is wrong.
Result<void> check_json_object(std::string_view text, const std::string& file, const JsonLimits& limits);

// The same, then parsed.
Result<nlohmann::ordered_json> parse_json_object(std::string_view text, const std::string& file,
                                                 const JsonLimits& limits = {});

}  // namespace millrace
