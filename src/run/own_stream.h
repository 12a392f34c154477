// The stream that a part of a context has on its own: the tokens before it that it sees, and the part. What is kept of
// the part is found again by these tokens, wherever the part stands in a prompt. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "context/document_context.h"
#include "flow/sequence.h"

namespace millrace {

// Tokens before the part that it sees, where these and the part are the tokens of a stream; -1: they are not.
int64_t tokens_before(const ContextPart& part);
// The tokens of that stream, in whole blocks: a prefix index finds no others. No prompt has the token that fills the
// last block, so that a plain one does not find the rows after the part's.
std::vector<TokenId> own_stream(const Sequence& s, const ContextPart& part, int64_t block_tokens);

}  // namespace millrace
