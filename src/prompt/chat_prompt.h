// Turns a conversation into the prompt that continues it, for `millrace chat` and the server.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "millrace/model.h"
#include "prompt/message_rewrites.h"

namespace millrace {

bool has_chat_template(const LanguageModel& model);

// `input`: an array of {"role", "content"} objects, or an object with "messages" and further template variables. If the
// model has no template, the contents are joined into one text, in which each user message begins on a new line. If the
// template refuses the messages, rewritten messages are tried (prompt/message_rewrites.h). Errors: user, corrupt (an
// exception of the template).
Result<std::string> chat_text(const LanguageModel& model, const nlohmann::ordered_json& input,
                              bool add_generation_prompt);

struct RenderedChat {
  std::string text;
  nlohmann::ordered_json messages;                   // as rendered
  std::vector<const MessageRewrite*> rewrites = {};  // rewrites that the template needed; empty: none
};

// Variant of chat_text() that also returns the rendered messages and the rewrites that produced them.
Result<RenderedChat> render_chat(const LanguageModel& model, const nlohmann::ordered_json& input,
                                 bool add_generation_prompt);

// Variant of render_chat() whose text stops at the end of the last message's content, which the answer continues
// (text/template/unfinished_message.h).
Result<RenderedChat> render_unfinished_chat(const LanguageModel& model, const nlohmann::ordered_json& input);

// Returns the text's tokens, with a start token unless the template writes one.
Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const std::string& text);

}  // namespace millrace
