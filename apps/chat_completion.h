// Completions that Tab offers in a chat: commands, names of settings and paths.
#pragma once

#include "line_keys.h"

namespace millrace {

LineChoices complete_chat(const std::string& line);

}  // namespace millrace
