// Finds who wrote each token of a conversation's prompt, so that a compressor can leave alone what the chat template
// and the system message put there.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "millrace/model.h"
#include "prompt/prompt_source.h"

namespace millrace {

// Returns the source of each token. `text` is chat_text(model, input, add_generation_prompt) and `tokens` are its
// tokens. If the template changes the messages, so that they are not found in the text, all tokens are fixed.
std::vector<PromptSource> message_sources(const LanguageModel& model, const nlohmann::ordered_json& input,
                                          bool add_generation_prompt, const std::string& text,
                                          const std::vector<TokenId>& tokens);

}  // namespace millrace
