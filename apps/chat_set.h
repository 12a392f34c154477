// /set of a chat: sampling options and the chat's own settings, by the names of this program and of Ollama.
#pragma once

#include <string>
#include <vector>

#include "chat_session.h"

namespace millrace {

// Runs "/set ARGUMENT". "parameter" before a name is dropped, as Ollama writes it. In a terminal a line says what was
// set. An error leaves the session unchanged. Errors: user.
Result<void> set_in_chat(ChatSession& session, const std::string& argument);

// Names that may follow /set.
std::vector<std::string> chat_setting_names();

// Returns the text without blanks at its ends.
std::string without_blanks(std::string_view text);

}  // namespace millrace
