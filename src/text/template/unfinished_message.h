// Renders a conversation whose last message the answer continues.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace millrace {

// Returns the text that `render` creates from `input`, up to the end of the last message's content. A marker after the
// content shows where that is. The end of the content is unchanged, even where it looks like a part of the template or
// is white space that the template removes. `input`: an array of messages, or an object with "messages". Errors: user
// (there is no last message, or the template leaves it out), those of `render`.
Result<std::string> render_unfinished(nlohmann::ordered_json input,
                                      const std::function<Result<std::string>(const nlohmann::ordered_json&)>& render);

}  // namespace millrace
