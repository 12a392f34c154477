// PromptSource: who wrote a token of a prompt. PromptScope: the tokens that a compressor may drop, by their sources.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace millrace {

enum class PromptSource : uint8_t {
  fixed,   // control tokens, the chat template, the system message, tool definitions: always remains
  text,    // a prompt without a conversation, or the last message of the user
  turn,    // an earlier message of the user
  answer,  // an earlier message of the assistant
  tool,    // the result of a tool
};

enum class PromptScope : uint8_t {
  all,        // text, turn and tool
  documents,  // text
  history,    // turn and answer
  tools,      // tool
};

// Errors: user (an unknown name).
Result<PromptScope> find_prompt_scope(std::string_view name);

// Returns true if a compressor of this scope may drop tokens of this source.
bool in_scope(PromptScope scope, PromptSource source);

}  // namespace millrace
