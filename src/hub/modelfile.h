// Modelfile: the description of a model in Ollama's format: a base, a chat template, a system prompt, parameters,
// adapters.
//
//     FROM ./model.gguf           a file, a folder, or the name of another model; repeatable for a split model
//     PARAMETER temperature 0.7   repeatable
//     SYSTEM """..."""            quotes are needed for text of several lines
//     TEMPLATE """..."""          a Jinja template
//     ADAPTER ./lora.gguf         repeatable
//     MESSAGE user Hello          repeatable; the role is system, user or assistant
//     DRAFT ./small.gguf          the draft model; a value like that of FROM
//     LICENSE, REQUIRES, RENDERER, PARSER
//
// Values follow the grammar of Ollama (parser/parser.go). A value that begins with " or """ ends with the first line
// that ends in the same quotes; any other value ends with its line. Files are UTF-8, or UTF-16 with a byte-order mark.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

struct Modelfile {
  std::string from;                    // the first FROM
  std::vector<std::string> more_from;  // further FROM values, in order
  std::string draft;                   // "": none
  std::string chat_template;           // Jinja; "": the base model's own template
  std::string system;
  std::string license;
  std::vector<std::pair<std::string, std::string>> parameters;  // in order; a key may repeat
  std::vector<std::pair<std::string, std::string>> messages;    // pairs of role and content
  std::vector<std::string> adapters;                            // paths
  // Instructions that only affect Ollama's own program: RENDERER, PARSER, REQUIRES. In order; the last of several equal
  // instructions counts.
  std::vector<std::pair<std::string, std::string>> kept;
  std::vector<std::string> notes;  // settings without effect, with the reason

  bool operator==(const Modelfile&) const = default;
};

// Errors: user; the message has the line number.
Result<Modelfile> parse_modelfile(std::string_view text);

// Returns true if `text` is a Go template, as Ollama uses: {{ .Prompt }}, {{ range .Messages }}.
bool is_go_template(std::string_view text);

// Returns text from which parse_modelfile() reads the same model, without its notes.
std::string modelfile_text(const Modelfile& model);

}  // namespace millrace
