// Text for suites: files as their authors publish them, packed with xz or not, and identities of a suite's items.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "base/result.h"

namespace millrace {

// At most 256 MB. Errors: user (cannot be opened), corrupt, resource.
Result<std::string> read_suite_text(const std::string& path);
// Each line's JSON. Errors: those of read_suite_text(), corrupt with the line.
Result<std::vector<nlohmann::ordered_json>> read_json_lines(const std::string& path);
// The text of a field. Errors (corrupt): there is none, or it is no text; `where` begins the message.
Result<std::string> text_field(const nlohmann::ordered_json& object, const char* name, const std::string& where);

// "3f2a91..." of the parts, each with its length.
std::string identity_of(const std::vector<std::string>& parts);

// Sentences in simple English, about `length` characters, the same each time.
std::string filler_text(int64_t length);

}  // namespace millrace
