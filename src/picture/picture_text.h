// Text from outside in pictures and reports.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// Returns text that any drawing accepts: valid UTF-8 of one line, at most `max_characters` long. Bytes that are not
// UTF-8 become U+FFFD, control characters spaces, and what is cut off an ellipsis.
std::string drawable_text(std::string_view text, size_t max_characters = 400);

// Escapes text for HTML and SVG, and leaves out control characters, which XML does not allow.
std::string escape_html(std::string_view text);

}  // namespace millrace
