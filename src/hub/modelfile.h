// Modelfile: a model described as in Ollama: a base, a chat template, a system prompt, parameters, adapters.
//
//     FROM ./model.gguf            a file, a folder, or the name of another model; repeatable, for the parts of one
//     model PARAMETER temperature 0.7    repeatable SYSTEM """..."""             quotes are needed for text of several
//     lines TEMPLATE """..."""           Jinja ADAPTER ./lora.gguf          repeatable MESSAGE user Hello repeatable;
//     system, user or assistant DRAFT ./small.gguf           the model that drafts; as FROM LICENSE, REQUIRES,
//     RENDERER, PARSER
//
// Values follow the grammar of Ollama (parser/parser.go): a value that begins with " or """ ends with the first line
// that ends in the same quotes, any other value ends with its line. Files may be UTF-8 or, with a byte-order mark,
// UTF-16.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

struct Modelfile {
  std::string from;                    // the first FROM
  std::vector<std::string> more_from;  // the other ones, in order
  std::string draft;                   // "": none
  std::string chat_template;           // Jinja; "": the base's own
  std::string system;
  std::string license;
  std::vector<std::pair<std::string, std::string>> parameters;  // in order; a key may repeat
  std::vector<std::pair<std::string, std::string>> messages;    // role and content
  std::vector<std::string> adapters;                            // paths
  // Instructions for Ollama's own program, which change nothing here: RENDERER, PARSER, REQUIRES. In order; the last
  // one of a word counts.
  std::vector<std::pair<std::string, std::string>> kept;
  std::vector<std::string> notes;  // settings without effect, and why

  bool operator==(const Modelfile&) const = default;
};

// Errors: user, with the line's number.
Result<Modelfile> parse_modelfile(std::string_view text);

// Returns true if a template is one of Go's, which Ollama uses: {{ .Prompt }}, {{ range .Messages }}.
bool is_go_template(std::string_view text);

// The text that parse_modelfile() reads back as the same model, but for its notes.
std::string modelfile_text(const Modelfile& model);

}  // namespace millrace
