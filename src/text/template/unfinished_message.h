// Renders a conversation whose last message the answer continues.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace millrace {

// Returns the text that `render` creates from `input`, up to the end of the last message's content. That end is found
// by a marker, which is appended to the content for the render. The content is not changed at its end, even if it looks
// like a part of the template or is white space that the template removes. `input`: an array of messages, or an object
// with "messages". Errors: user (there is no last message, or the template omits it), those of `render`.
Result<std::string> render_unfinished(nlohmann::ordered_json input,
                                      const std::function<Result<std::string>(const nlohmann::ordered_json&)>& render);

}  // namespace millrace
