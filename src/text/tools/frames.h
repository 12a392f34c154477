// What some dialects need beside a ToolDialect: those that describe tools in their own words, and those that write all
// of an answer in frames.
#pragma once

#include "text/tools/tool_dialect.h"

namespace millrace {

// For templates that write a dialect's calls and name no tools: what the system prompt says of them, as the model was
// trained on it. Null: such a template is taken for one that knows no tools.
using ToolDescription = std::string (*)(std::span<const Tool> tools);
ToolDescription tool_description_of(const ToolDialect& dialect);

// Where every answer is written in frames, thinking and text too: its parser is used without tools as well, and this is
// what an answer is held to. `text`: what its text is held to; null: a call has to come. Null: answers have no frames.
using AnswerFrames = nlohmann::ordered_json (*)(std::span<const Tool> tools, const ToolWish& wish,
                                                const nlohmann::ordered_json& text);
AnswerFrames answer_frames_of(const ToolDialect& dialect);

// Those that there are.
std::string describe_deepseek_tools(std::span<const Tool> tools);
nlohmann::ordered_json harmony_frames(std::span<const Tool> tools, const ToolWish& wish,
                                      const nlohmann::ordered_json& text);

}  // namespace millrace
