// The commands of a chat, lines beginning with "/".
#pragma once

#include <string>
#include <string_view>

#include "chat_session.h"

namespace millrace {

enum class ChatStep { message, handled, leave };

// Returns true if the text is a command. Text that begins with "//" is a message that begins with a slash; pasted text
// of several lines is a message unless its first word is a command.
bool is_chat_command(std::string_view text);

// Runs one command and prints to stdout. An error leaves the session unchanged.
Result<ChatStep> run_chat_command(ChatSession& session, const std::string& text);

// "/help", "/set" ...
std::vector<std::string> chat_command_names();

}  // namespace millrace
