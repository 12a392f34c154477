// TokenizerSpec from the tokenizer.ggml.* keys of a GGUF file, with the conventions that hold where a key is absent.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "loader/gguf_metadata.h"
#include "text/tokenizer.h"

namespace millrace {

// Takes the arrays out of `metadata`. Absent when the file holds no vocabulary (or says "none").
// Errors: corrupt (lengths that disagree, ids outside the vocabulary). An unknown algorithm or pre-tokenizer keeps
// its name; Tokenizer::create() refuses it.
Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(GgufMetadata& metadata, const std::string& file);

}  // namespace millrace
