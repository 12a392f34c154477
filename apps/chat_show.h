// /show of a chat: what is known of its model, in the words of Ollama.
#pragma once

#include <string>

#include "chat_session.h"

namespace millrace {

// Prints `what`: info, license, modelfile, parameters, system or template; "": the list of these. Errors: user.
Result<void> show_in_chat(const ChatSession& session, const std::string& what);

}  // namespace millrace
