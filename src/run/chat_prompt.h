// Turns a conversation into the prompt that continues it, for `millrace chat` and the server.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "millrace/model.h"

namespace millrace {

bool has_chat_template(const LanguageModel& model);

// `input`: an array of {"role", "content"} objects, or an object with "messages" and further template variables. A
// model without a template gets all contents as one text, in which each user message begins on a new line. Errors:
// user, or what the template raises (corrupt).
Result<std::string> chat_text(const LanguageModel& model, const nlohmann::ordered_json& input,
                              bool add_generation_prompt);

// The same up to the end of the last message's content, which the answer continues
// (text/template/unfinished_message.h).
Result<std::string> unfinished_chat_text(const LanguageModel& model, const nlohmann::ordered_json& input);

// The text's tokens, with a start token unless the template writes it.
Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const std::string& text);

}  // namespace millrace
