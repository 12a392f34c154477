// Rewrites conversations for chat templates that refuse messages an API allows: tool calls without an id or with an id
// of another form (Mistral's templates require nine letters or digits), a system role (Gemma 2), two messages of one
// role in a row.
//
// chat_text() first renders the messages unchanged. If the template refuses them, it tries combinations of rewrites,
// the smallest first, and reports the first combination that succeeds.
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
  // Changes `messages`, an array of objects. Messages with an unknown structure are not changed.
  void (*apply)(nlohmann::ordered_json& messages);
};

std::span<const MessageRewrite> message_rewrites();

// Sets the id of every tool call to nine letters and digits, derived from the call's number in the conversation. A
// result without an id is assigned to the first open call of its name, or else to the first open call.
void rewrite_call_ids(nlohmann::ordered_json& messages);
// Splits a message with several tool calls into one message for each call, followed by the call's results.
void split_parallel_calls(nlohmann::ordered_json& messages);
// Moves each system message to the front of the next user message.
void move_system_to_user(nlohmann::ordered_json& messages);
// Joins adjacent messages of one role. If the first message (after a system message) is an assistant's, puts an empty
// user message before it.
void alternate_roles(nlohmann::ordered_json& messages);

// Describes, for reports, that the template received an empty list of tools; changes no message. Some templates loop
// over the list even if the request has no tools.
const MessageRewrite& empty_tools_rewrite();

// Completes tool calls from Ollama's clients to the form that templates read. Arguments that are absent, null or an
// empty text become an empty object; an absent type becomes "function".
void complete_calls(nlohmann::ordered_json& messages);

}  // namespace millrace
