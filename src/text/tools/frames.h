// Optional additions to a ToolDialect: a special description of tools, and frames around every message of an answer.
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

// The built-in descriptions and frames.
std::string describe_deepseek_tools(std::span<const Tool> tools);
nlohmann::ordered_json harmony_frames(std::span<const Tool> tools, const ToolChoice& wish,
                                      const nlohmann::ordered_json& text);

}  // namespace millrace
