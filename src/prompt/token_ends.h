// Finds the place where each token ends in a text, for tokenizers that preserve the text's bytes.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/token.h"

namespace millrace {

class Tokenizer;

// Returns the byte offset in `text` at which each token ends, ascending. A token that adds nothing to the text (a start
// token, or the space that a tokenizer puts before a text) ends at the end of the token before it. Returns nothing if
// the tokens do not spell the text, because the tokenizer normalizes it.
std::optional<std::vector<size_t>> token_ends(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                              std::string_view text);

}  // namespace millrace
