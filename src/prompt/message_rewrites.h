// Rewrites of a conversation for chat templates that refuse what an API allows: ids of tool calls in another form or
// none (Mistral's templates want nine letters or digits), a system role (Gemma 2), two messages of one role in a row.
//
// chat_text() renders the messages as they are. Only if the template refuses them, it tries the rewrites, fewest first,
// and reports those of the first rendering that succeeds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"

namespace millrace {

struct MessageRewrite {
  std::string_view name;
  std::string_view effect;  // one line, for reports
  // Changes `messages`, an array of objects. Messages it does not understand stay as they are.
  void (*apply)(nlohmann::ordered_json& messages);
};

std::span<const MessageRewrite> message_rewrites();

// Gives every tool call an id of nine letters and digits by its number in the conversation. A result without an id
// belongs to the first open call of its name, or to the first open call.
void rewrite_call_ids(nlohmann::ordered_json& messages);
// Gives each of several tool calls of one message a message of its own, followed by its results.
void split_parallel_calls(nlohmann::ordered_json& messages);
// Moves each system message to the front of the next user message.
void move_system_to_user(nlohmann::ordered_json& messages);
// Joins neighbours of one role and puts an empty user message before an assistant's first one.
void alternate_roles(nlohmann::ordered_json& messages);

// The report of a prompt whose template received an empty list of tools; it changes no message. Templates for tool use
// loop over the list, also where the request has none.
const MessageRewrite& empty_tools_rewrite();

// Completes tool calls, as Ollama's clients send them, to the form that templates read: arguments that are absent, null
// or an empty text become an empty object, and an absent type becomes "function".
void complete_calls(nlohmann::ordered_json& messages);

}  // namespace millrace
