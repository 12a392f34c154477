// Subsequence recovery of LongLLMLingua (Jiang et al., 2024, algorithm 1): an answer quotes a compressed prompt, in
// which parts of names and numbers may be missing; the quotes are replaced by what the original prompt says. Pure
// function.
//
//   original    born in Bar ce lo na in 1 9 0 2       answer     "Bar lo na, 1 2"
//   compressed  born Bar lo na 1 2                    recovered  "Bar ce lo na, 1 9 0 2"
#pragma once

#include <span>
#include <vector>

#include "millrace/token.h"

namespace millrace {

// Walks through `answer`; the longest run of tokens that `compressed` has too, two tokens or more, is replaced by the
// shortest piece of `original` that contains the run as a subsequence. If no piece does, the run remains.
std::vector<TokenId> recover_answer(std::span<const TokenId> original, std::span<const TokenId> compressed,
                                    std::span<const TokenId> answer);

}  // namespace millrace
