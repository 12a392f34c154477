// ToolDialect: the format in which a family of models writes tool calls. A dialect is one file and one line in
// builtin.cc. The dialect of a model is detected from its chat template.
//
//   hermes     <tool_call>{"name": "f", "arguments": {...}}</tool_call>
//   llama      {"name": "f", "parameters": {...}}
//   mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}}]   or   [TOOL_CALLS]f[ARGS]{...}
//   qwen_xml   <tool_call><function=f><parameter=key>value</parameter></function></tool_call>
//   glm, minimax   similar to qwen_xml, with other tags
//   gemma_call <|tool_call>call:f{key:<|"|>value<|"|>}<tool_call|>
//   lfm        <|tool_call_start|>[f(key='value')]<|tool_call_end|>
//   granite_list, nemotron_list   a list as mistral's behind other marks
//   deepseek, harmony, kimi   special tokens, see their files
//
// A dialect consists of a structure (text/grammar/structure.h) and a streaming parser of answers. The structure
// constrains answers to calls whose arguments match the schema of their tool.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "base/registry.h"

namespace millrace {

struct Tool {
  std::string name;
  std::string description;
  nlohmann::ordered_json parameters;  // a JSON Schema of type object
};

// Pieces of an answer, in order. Text of one kind may be split into several pieces.
struct AnswerPiece {
  enum class Kind {
    text,
    reasoning,
    call,       // the beginning of a call; `text` is the name of the tool
    arguments,  // a piece of the JSON text of the current call's arguments
    call_end,
  };
  Kind kind = Kind::text;
  std::string text;
};
using AnswerPieces = std::vector<AnswerPiece>;

// Appends the text to the last piece if that has the same kind, else adds a piece.
void add_piece(AnswerPieces& pieces, AnswerPiece::Kind kind, std::string_view text);

// Streaming parser of one answer. Text that looks like a call but is not a valid call is returned as text.
class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual void push(std::string_view text, AnswerPieces& out) = 0;
  virtual void finish(AnswerPieces& out) = 0;  // ends the answer; emits text that was held back
};

struct ToolChoice {
  bool required = false;  // the answer consists only of calls, at least one
  bool parallel = true;   // more than one call is allowed
};

// Returns a description of the tools for the system prompt, in the form that the model was trained on. Used for
// templates that render a dialect's calls but not the tools.
using ToolDescription = std::string (*)(std::span<const Tool> tools);

// Returns the structure of a whole answer, for dialects that frame every message, including reasoning and text. The
// parser of such a dialect is used even without tools. `text`: structure of the answer's text; null: a call is
// required.
using AnswerFrames = nlohmann::ordered_json (*)(std::span<const Tool> tools, const ToolChoice& wish,
                                                const nlohmann::ordered_json& text);

// Returns the text of earlier calls, which is appended to their message's content. Used if the template shows tools but
// not calls. `calls`: a list of {name, arguments}.
using CallWriter = std::string (*)(const nlohmann::ordered_json& calls);

struct ToolDialect {
  const char* name;
  const char* summary;
  // returns true if models with this template use the dialect; null: never detected
  bool (*speaks)(std::string_view chat_template);
  std::unique_ptr<CallParser> (*parser)(std::span<const Tool> tools);
  nlohmann::ordered_json (*structure)(std::span<const Tool> tools, const ToolChoice& wish);
  std::span<const char* const> markers;  // control tokens that are part of the text of calls
  bool short_ids = false;                // call ids are nine letters and digits
  const char* start = "";                // begins a call within other text; "": the dialect has frames
  // null: a template without tools is treated as one without tool support
  ToolDescription description = nullptr;
  AnswerFrames frames = nullptr;     // null: answers have no frames
  CallWriter call_writer = nullptr;  // null: the dialect's templates show calls
};

const Registry<const ToolDialect*>& tool_dialects();  // builtin.cc; the first match is used

// The dialect for templates without tool support or with an unknown dialect. Calls have the format of `hermes`, which
// the system prompt explains. describe_tools() and describe_calls() convert tools and earlier calls to messages that
// any template accepts.
const ToolDialect& described_tools();
std::string describe_tools(std::span<const Tool> tools, const ToolChoice& wish);
nlohmann::ordered_json describe_calls(const nlohmann::ordered_json& messages);
// Moves earlier calls into the contents of `messages`, as text.
void write_calls(CallWriter writer, nlohmann::ordered_json& messages);

// Returns the dialect of a template, or described_tools() if none is detected.
const ToolDialect& tool_dialect_of(std::string_view chat_template);

}  // namespace millrace
