// The sampling options as one table: name, type, default, bounds and help of every field. Read by the command line, the
// config file and the HTTP API; validate() checks against it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "base/result.h"
#include "millrace/request.h"

namespace millrace {

std::span<const OptionSpec> sampling_schema();

// The table's rows with these names, in this order; for a technique's description.
std::vector<OptionSpec> sampling_options(std::initializer_list<std::string_view> names);

// Sets one field from text. Lists: dry_breakers is a JSON array of strings, logit_bias "ID:BIAS,ID:BIAS", banned_tokens
// and allowed_tokens "ID,ID". Errors (user): unknown name, wrong type, out of bounds.
Result<void> set_sampling_option(SamplingOptions& options, std::string_view name, std::string_view value);

// One field as text that set_sampling_option() parses back exactly. "" for an unknown name.
std::string sampling_option_text(const SamplingOptions& options, std::string_view name);

// Checks every field, and token ids against the vocabulary. Errors: user; unsupported (mirostat 1).
Result<void> validate(const SamplingOptions& options, int64_t vocab_size);

}  // namespace millrace
