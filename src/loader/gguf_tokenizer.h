// TokenizerSpec from the tokenizer.ggml.* keys of a GGUF file, with defaults for absent keys.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "loader/gguf_metadata.h"
#include "text/tokenizer.h"

namespace millrace {

// Moves the arrays out of `metadata`. Empty if the file has no vocabulary (or says "none"). Errors: corrupt
// (inconsistent lengths, ids outside the vocabulary). An unknown algorithm or pre-tokenizer is passed on by name;
// Tokenizer::create() rejects it.
Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(GgufMetadata& metadata, const std::string& file);

}  // namespace millrace
