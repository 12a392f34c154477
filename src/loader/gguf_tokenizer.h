// Reads a TokenizerSpec from the tokenizer.ggml.* keys of a GGUF file. Absent keys have defaults.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "loader/gguf_metadata.h"
#include "text/tokenizer.h"

namespace millrace {

// Moves the arrays out of `metadata`. Returns nullopt if the file has no vocabulary or names the algorithm "none". An
// unknown algorithm or pre-tokenizer is passed on by name; Tokenizer::create() rejects it. Errors: corrupt
// (inconsistent lengths, ids outside the vocabulary).
Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(GgufMetadata& metadata, const std::string& file);

}  // namespace millrace
