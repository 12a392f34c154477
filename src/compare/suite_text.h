// Reads texts for suites from published files, which may be compressed with xz, and computes identities of a suite's
// items.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "base/result.h"

namespace millrace {

// Reads at most 256 MB. Errors: user (the file cannot be opened), corrupt, resource.
Result<std::string> read_suite_text(const std::string& path);
// Returns the JSON value of each line. Errors: those of read_suite_text(), corrupt (with the line number).
Result<std::vector<nlohmann::ordered_json>> read_json_lines(const std::string& path);
// Returns the text of a field. `where`: beginning of error messages. Errors: corrupt (the field is missing or is not a
// text).
Result<std::string> text_field(const nlohmann::ordered_json& object, const char* name, const std::string& where);

// Returns a hash of the parts and their lengths: "3f2a91...".
std::string identity_of(const std::vector<std::string>& parts);

// Returns sentences in simple English with about `length` characters; always the same text.
std::string filler_text(int64_t length);

}  // namespace millrace
