// What a line beginning with "/" does in a chat: a table of commands over a session.
#pragma once

#include <string>
#include <string_view>

#include "chat_session.h"

namespace millrace {

enum class ChatStep { message, handled, leave };

// True for a text that asks for a command; "//" begins a message with a slash, and so does a pasted text of several
// lines whose first word is no command.
bool is_chat_command(std::string_view text);

// Carries out one command; what it tells goes to stdout. Errors leave the session as it was.
Result<ChatStep> run_chat_command(ChatSession& session, const std::string& text);

// "name = value" for /set and for the chat's own settings n, trim and system. Errors: user.
Result<void> set_chat_option(ChatSession& session, std::string name, const std::string& value);

}  // namespace millrace
