// Converts a conversation to the variables of a chat template, with Hugging Face's names: messages, tools, documents,
// add_generation_prompt, bos_token, eos_token.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

// The template for models that have none (ChatML).
extern const std::string_view kFallbackChatTemplate;

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatContextOptions {
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  const nlohmann::ordered_json* tools = nullptr;      // array of tool definitions; null: none
  const nlohmann::ordered_json* documents = nullptr;  // array; null: none
  const nlohmann::ordered_json* extra = nullptr;      // object of additional variables, such as enable_thinking
  // Clients send the arguments of a tool call as a JSON string; templates expect a mapping.
  bool parse_tool_arguments = true;
};

nlohmann::ordered_json to_json(const std::vector<ChatMessage>& messages);

// Returns the variables as one JSON object. Errors: user (`messages` is not an array of objects with a role, tools is
// not an array ...).
Result<nlohmann::ordered_json> chat_context(const nlohmann::ordered_json& messages, const ChatContextOptions& options);

}  // namespace millrace
