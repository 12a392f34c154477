// The separate stream that represents a part of a context: the tokens before it that it sees, and the part. Rows of the
// part are found again by these tokens, at any place of the part in a prompt. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "context/document_context.h"
#include "flow/sequence.h"

namespace millrace {

// Tokens before the part that it sees, where these and the part are the tokens of a stream; -1: they are not.
int64_t tokens_before(const ContextPart& part);
// The tokens of that stream, in whole blocks: a prefix index finds no others. No prompt has the token that fills the
// last block, so that a plain stream does not find the rows after the part's.
std::vector<TokenId> own_stream(const Sequence& s, const ContextPart& part, int64_t block_tokens);

}  // namespace millrace
