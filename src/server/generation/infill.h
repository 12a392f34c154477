// Infill (fill in the middle): its request fields, and the conversion to prompts.
#pragma once

#include "server/api/schema.h"

namespace millrace {

Field suffix_field();                // text after the output; "": no infill
std::vector<Field> infill_fields();  // llama-server's: input_prefix, input_suffix, input_extra, prompt

// Converts params.prompts[], the texts before the middle, to complete prompts. `context` is the limit for prompt and
// answer.
std::optional<ApiError> make_infill_prompts(const LanguageModel& model, int64_t context, GenerationRequest& params);

}  // namespace millrace
