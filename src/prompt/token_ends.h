// Where each token of a text ends in it, for tokenizers that keep the text's bytes.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/token.h"

namespace millrace {

class Tokenizer;

// Byte offsets in `text` at which tokens end, ascending. A token that adds nothing to the text (a start token, the
// space that a tokenizer puts before a text) ends where the token before it does. Returns nothing if the tokens do not
// spell the text, because the tokenizer normalizes it.
std::optional<std::vector<size_t>> token_ends(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                              std::string_view text);

}  // namespace millrace
