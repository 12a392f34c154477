// A chat's conversation and its file format: a JSON array of {"role", "content"}, optionally beginning with a system
// message, as in chat APIs. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "text/template/chat_messages.h"

namespace millrace {

struct Conversation {
  std::string system;              // empty: no system message
  std::vector<ChatMessage> turns;  // user and assistant

  bool empty() const { return system.empty() && turns.empty(); }
  bool ends_with(std::string_view role) const { return !turns.empty() && turns.back().role == role; }

  // The system message and the turns, in order.
  std::vector<ChatMessage> messages() const;

  // Drops the oldest user turn and its answers, so that a user turn is first again; returns how many were dropped.
  // Never drops the last turn.
  int drop_oldest();
};

// Errors: corrupt, with the file name, the message's number and the problem.
Result<Conversation> load_conversation(const std::string& path);
Result<void> save_conversation(const Conversation& conversation, const std::string& path);

}  // namespace millrace
