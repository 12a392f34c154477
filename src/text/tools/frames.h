// Optional additions to a ToolDialect: a special description of tools, frames around every message of an answer, and
// the text of earlier calls.
#pragma once

#include "text/tools/tool_dialect.h"

namespace millrace {

// Returns a description of the tools for the system prompt, in the form that the model was trained on. Used for
// templates that render a dialect's calls but not the tools. Null: such a template is treated as one without tool
// support.
using ToolDescription = std::string (*)(std::span<const Tool> tools);
ToolDescription tool_description_of(const ToolDialect& dialect);

// Returns the structure of a whole answer, for dialects that frame every message, including reasoning and text. The
// parser of such a dialect is used even without tools. `text`: structure of the answer's text; null: a call is
// required. If the function is null, answers have no frames.
using AnswerFrames = nlohmann::ordered_json (*)(std::span<const Tool> tools, const ToolChoice& wish,
                                                const nlohmann::ordered_json& text);
AnswerFrames answer_frames_of(const ToolDialect& dialect);

// For dialects with templates that show tools and have no place for earlier calls: their text, to be put behind the
// content of their message. `calls`: a list of {name, arguments}. Null: templates of the dialect show calls.
using CallWriter = std::string (*)(const nlohmann::ordered_json& calls);
CallWriter call_writer_of(const ToolDialect& dialect);
// Puts earlier calls into the contents of `messages`.
void write_calls(CallWriter writer, nlohmann::ordered_json& messages);

// The built-in descriptions and frames.
std::string describe_deepseek_tools(std::span<const Tool> tools);
std::string write_granite_calls(const nlohmann::ordered_json& calls);
std::string write_lfm_calls(const nlohmann::ordered_json& calls);
nlohmann::ordered_json harmony_frames(std::span<const Tool> tools, const ToolChoice& wish,
                                      const nlohmann::ordered_json& text);

}  // namespace millrace
