// What was said in a chat, and its file format: a JSON array of {"role", "content"}, a system message first if there
// is one; the same list that chat APIs take. Not thread-safe.
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

  // Drops the oldest turn and what answered it, so that a person's turn comes first again; how many went. The last
  // turn always stays.
  int drop_oldest();
};

// Errors: corrupt, with the file's name and what is wrong with which message.
Result<Conversation> load_conversation(const std::string& path);
Result<void> save_conversation(const Conversation& conversation, const std::string& path);

}  // namespace millrace
