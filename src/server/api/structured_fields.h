// Fields for structured output, under the name that each API uses.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// OpenAI's response_format, with llama-server's flat forms.
Field response_format_field();
// Variant for a format nested in another field; `where` is its name in error messages.
std::optional<ApiError> set_response_format(GenerationRequest& params, const Json& format, const std::string& where);

// vLLM's: structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar.
std::vector<Field> guided_fields();
std::vector<Field> grammar_fields();  // llama-server's: grammar, json_schema
Field ollama_format_field();          // format: "json" or a schema

}  // namespace millrace
