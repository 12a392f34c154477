// Fields that several APIs have, under the names that each gives them.
#pragma once

#include "server/api/schema.h"

namespace millrace {

// Every sampling option that is a number, under its own name, but for those named.
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
std::vector<Field>
extension_fields();  // min_tokens, ignore_eos, cache_prompt, priority, timeout, banned and allowed tokens

// For fields that are not there: what clients send by default is let through.
bool is_false(const Json& value);
bool is_empty(const Json& value);      // "", [], {}
bool is_no_format(const Json& value);  // {"type": "text"}, ""
bool is_no_choice(const Json& value);  // "none", "auto"
bool is_one(const Json& value);

}  // namespace millrace
