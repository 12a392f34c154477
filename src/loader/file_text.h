// Text from model files: quoting it for messages, and making it valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Returns 'text' in quotes for a message, truncated to 120 bytes. Control characters and invalid UTF-8 become \xNN.
std::string quoted_name(std::string_view text);

// Returns the text with every invalid byte replaced by U+FFFD; valid text is unchanged.
std::string to_valid_utf8(std::string_view text);

}  // namespace millrace
