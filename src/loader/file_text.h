// Text that comes out of model files: how it is shown in messages, and how it is made safe to keep.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// 'name' in quotes for a message: control characters and invalid UTF-8 as \xNN, cut after 120 bytes.
std::string quoted_name(std::string_view text);

// The text with every invalid byte replaced by U+FFFD; what is valid is unchanged.
std::string to_valid_utf8(std::string_view text);

}  // namespace millrace
