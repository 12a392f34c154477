// Infill in requests: the fields that ask for it, and the prompts that they become.
#pragma once

#include "server/api/schema.h"

namespace millrace {

Field suffix_field();                // what follows the answer; "" asks for nothing
std::vector<Field> infill_fields();  // llama-server's: input_prefix, input_suffix, input_extra, prompt

// ask.prompts[] are the texts before the middle; they become whole prompts. `context`: of a prompt and its answer.
std::optional<ApiError> make_infill_prompts(const LanguageModel& model, int64_t context, GenerationRequest& ask);

}  // namespace millrace
