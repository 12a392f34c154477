// vLLM's fields shared by chat completions and completions.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// stop_token_ids, include_stop_str_in_output, skip_special_tokens, truncate_prompt_tokens, return_token_ids, bad_words,
// prompt_logprobs, request_id, cache_salt.
std::vector<Field> vllm_fields();

}  // namespace millrace
