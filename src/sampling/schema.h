// The sampling options as one table: name, type, default, bounds and help of every field. The command line, the config
// file and the HTTP API read the table; validate() checks values against it.
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

// Returns the table's rows with these names, in this order, for the description of a technique.
std::vector<OptionSpec> sampling_options(std::initializer_list<std::string_view> names);

// Sets one field from text. Formats of lists: dry_breakers is a JSON array of strings, logit_bias is "ID:BIAS,ID:BIAS",
// banned_tokens and allowed_tokens are "ID,ID". Errors: user (unknown name, wrong type, out of bounds).
Result<void> set_sampling_option(SamplingOptions& options, std::string_view name, std::string_view value);

// Returns one field as text, from which set_sampling_option() sets the same value. "" for an unknown name.
std::string sampling_option_text(const SamplingOptions& options, std::string_view name);

// Checks every field, including token ids against the vocabulary. Errors: user; unsupported (mirostat 1).
Result<void> validate(const SamplingOptions& options, int64_t vocab_size);

}  // namespace millrace
