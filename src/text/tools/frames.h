// Optional additions to a ToolDialect: a special description of tools, and frames around every message of an answer.
#pragma once

#include "text/tools/tool_dialect.h"

namespace millrace {

// For templates that render a dialect's calls but not the tools: their description for the system prompt, in the form
// that the model was trained on. Null: such a template counts as one without tool support.
using ToolDescription = std::string (*)(std::span<const Tool> tools);
ToolDescription tool_description_of(const ToolDialect& dialect);

// For dialects that frame every message, reasoning and text included: the parser is used even without tools, and this
// returns the structure of a whole answer. `text` is the structure of its text; if null, a call is required. Null:
// answers have no frames.
using AnswerFrames = nlohmann::ordered_json (*)(std::span<const Tool> tools, const ToolChoice& wish,
                                                const nlohmann::ordered_json& text);
AnswerFrames answer_frames_of(const ToolDialect& dialect);

// The implementations.
std::string describe_deepseek_tools(std::span<const Tool> tools);
nlohmann::ordered_json harmony_frames(std::span<const Tool> tools, const ToolChoice& wish,
                                      const nlohmann::ordered_json& text);

}  // namespace millrace
