// Fields shared by several APIs, under the name that each API uses.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// Every numeric sampling option under its own name, except `without`.
std::vector<Field> sampling_fields(std::initializer_list<std::string_view> without = {});

Field model_field();
Field stream_field(bool default_value);
Field stop_field(const std::string& name);
Field seed_field(bool negative_is_random);
Field max_tokens_field(const std::string& name, const std::string& default_value);
Field logit_bias_field();
Field prompt_field(const std::string& name, bool several);
Field answers_field();                    // n
Field messages_field();                   // OpenAI's
std::vector<Field> chat_prompt_fields();  // messages, and how the chat template is used
Field usage_in_stream_field();
// min_tokens, ignore_eos, cache_prompt, priority, timeout, max_ttft, deadline, banned and allowed tokens.
std::vector<Field> extension_fields();
std::vector<Field> reading_fields();  // priority and timeout, of prompts that are not answered

// Values of unsupported fields that are accepted because clients send them by default.
Field obfuscation_field();  // "include_obfuscation"
bool is_false(const Json& value);
bool is_empty(const Json& value);      // "", [], {}
bool is_no_format(const Json& value);  // {"type": "text"}, ""
bool is_no_choice(const Json& value);  // "none", "auto"
bool is_one(const Json& value);

}  // namespace millrace
