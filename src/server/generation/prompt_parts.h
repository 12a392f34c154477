// Says which parts of a conversation's prompt a compressor may drop: those that users and tools wrote, but nothing that
// the chat template, the system message or the model's own answers put there. Also describes the compression to the
// request.
#pragma once

#include <string>
#include <vector>

#include "millrace/model.h"
#include "prompt/pipeline.h"
#include "server/generation/generation_request.h"
#include "server/json.h"

namespace millrace {

// A 1 for each token that must remain. `text` is chat_text(model, input, add_generation_prompt) and `tokens` are its
// tokens. Where a template changes the messages, so that they are not found in the text, all tokens must remain.
std::vector<char> fixed_parts(const LanguageModel& model, const Json& input, bool add_generation_prompt,
                              const std::string& text, const std::vector<TokenId>& tokens);

// Replaces the prompts by the compressed ones, one for each, and appends the changes to params.applied.
void take_compressed(GenerationRequest& params, std::vector<CompressedPrompt> compressed);

}  // namespace millrace
