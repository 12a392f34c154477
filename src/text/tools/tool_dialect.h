// ToolDialect: how a family of models writes calls of tools. A dialect is one file and one line in builtin.cc; a chat
// template says which one its model was trained on.
//
//   hermes     <tool_call>{"name": "f", "arguments": {...}}</tool_call>
//   llama      {"name": "f", "parameters": {...}}                         deepseek, harmony   between marks of their
//   own, see their files mistral    [TOOL_CALLS][{"name": "f", "arguments": {...}}]        [TOOL_CALLS]f[ARGS]{...}
//   qwen_xml   <tool_call><function=f><parameter=key>value</parameter></function></tool_call>        glm   alike, with
//   other tags
//
// A dialect does two things: its structure (text/grammar/structure.h) holds answers to calls whose arguments fit their
// tool's schema, and its parser reads an answer as it comes.
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

// What an answer is made of, in the order in which it comes. Texts of one kind may come in several pieces.
struct AnswerPiece {
  enum class Kind {
    text,
    reasoning,
    call,       // one begins; text: its tool's name
    arguments,  // of that one: a piece of a JSON object's text
    call_end,
  };
  Kind kind = Kind::text;
  std::string text;
};
using AnswerPieces = std::vector<AnswerPiece>;

// Joins what is of one kind.
void add_piece(AnswerPieces& pieces, AnswerPiece::Kind kind, std::string_view text);

// One answer, byte for byte. What looks like a call and is none comes out as text.
class CallParser {
 public:
  virtual ~CallParser() = default;
  virtual void push(std::string_view text, AnswerPieces& out) = 0;
  virtual void finish(AnswerPieces& out) = 0;  // nothing follows: what was held back comes
};

struct ToolWish {
  bool required = false;  // the answer is one call or more, and nothing else
  bool parallel = true;   // more than one
};

struct ToolDialect {
  const char* name;
  const char* summary;
  bool (*speaks)(std::string_view chat_template);  // whether a model with this template does; null: chosen otherwise
  std::unique_ptr<CallParser> (*parser)(std::span<const Tool> tools);
  nlohmann::ordered_json (*structure)(std::span<const Tool> tools, const ToolWish& wish);
  std::span<const char* const> markers;  // control tokens that are part of a call's text
  bool short_ids = false;                // ids of calls are nine letters and digits
};

const Registry<const ToolDialect*>&
tool_dialects();  // builtin.cc; the first that speaks a template's language is its own

// For templates that know no tools, or none of the dialects: calls are written as `hermes` has them, and the system
// prompt says so. These two put tools and earlier calls into messages that any template takes.
const ToolDialect& described_tools();
std::string describe_tools(std::span<const Tool> tools, const ToolWish& wish);
nlohmann::ordered_json describe_calls(const nlohmann::ordered_json& messages);

// The dialect of a template; described_tools() where it knows none.
const ToolDialect& tool_dialect_of(std::string_view chat_template);

}  // namespace millrace
