// Fields that say what an answer must be written like, under the names that each API gives them.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// OpenAI's response_format, with llama-server's flat forms.
Field response_format_field();
// The same, where it lies in another field: `where` names it in errors.
std::optional<ApiError> set_response_format(GenerationRequest& ask, const Json& format, const std::string& where);

std::vector<Field>
guided_fields();  // vLLM's: structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar
std::vector<Field> grammar_fields();  // llama-server's: grammar, json_schema
Field ollama_format_field();          // format: "json" or a schema

}  // namespace millrace
