// Turns a conversation into the prompt that continues it, for `millrace chat` and the server.
#pragma once

#include <string>
#include <vector>

#include "base/ordered_json.h"
#include "millrace/model.h"
#include "prompt/message_rewrites.h"

namespace millrace {

bool has_chat_template(const LanguageModel& model);

// `input`: an array of {"role", "content"} objects, or an object with "messages" and further template variables. For a
// model without a template, all contents are one text, in which each user message begins on a new line. Errors: user,
// or an exception of the template (corrupt). Messages that the template refuses are rewritten if it accepts the result
// (prompt/message_rewrites.h).
Result<std::string> chat_text(const LanguageModel& model, const nlohmann::ordered_json& input,
                              bool add_generation_prompt);

struct RenderedChat {
  std::string text;
  nlohmann::ordered_json messages;                   // as rendered
  std::vector<const MessageRewrite*> rewrites = {};  // that the template needed; empty: none
};

// chat_text() with the messages that were rendered, and how they differ from the given ones.
Result<RenderedChat> render_chat(const LanguageModel& model, const nlohmann::ordered_json& input,
                                 bool add_generation_prompt);

// render_chat() up to the end of the last message's content, which the answer continues
// (text/template/unfinished_message.h).
Result<RenderedChat> render_unfinished_chat(const LanguageModel& model, const nlohmann::ordered_json& input);

// The text's tokens, with a start token unless the template writes it.
Result<std::vector<TokenId>> encode_chat(const LanguageModel& model, const std::string& text);

}  // namespace millrace
