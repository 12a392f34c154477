// Iterative token pruning of LLMLingua and LongLLMLingua (Jiang et al., 2023, 2024): the text is read in segments, each
// after what remained of the text before it, and the tokens that say most remain in each.
//
//   kept so far | segment          score of a token: -log p(token | kept so far, segment before it)
//   question | kept so far | segment   with a question: how much the question lowers it (contrastive perplexity)
#pragma once

#include <span>
#include <string>
#include <vector>

#include "prompt/compressor.h"

namespace millrace {

// Tokens that are shortened together, by index in the prompt, in the order in which the model reads them.
struct PruningBlock {
  std::vector<int64_t> tokens;
  int64_t keep = 0;  // number of tokens that remain
};

struct PruningOptions {
  std::string model;
  int64_t segment = 100;              // tokens
  std::span<const TokenId> question;  // empty: scores are self-information
};

// Returns the tokens that remain, in the order of the blocks. Errors: those of `scores`.
Result<std::vector<int64_t>> prune_tokens(const PromptView& prompt, std::span<const PruningBlock> blocks,
                                          const PruningOptions& options, PromptScores& scores);

// Returns the fixed tokens at the beginning of the prompt, which come before every scored text: a start token, the
// header of a chat template.
std::vector<TokenId> leading_tokens(const PromptView& prompt);

// Returns the mean information of the last `count` of these tokens, in nats; 0 if none has a finite score.
Result<double> mean_information(const std::string& model, std::span<const TokenId> tokens, int64_t count,
                                PromptScores& scores);

// Changes `wanted` so that its sum is `total` and each is 0 to `sizes`: the first elements gain first, the last lose
// first. `total` is at most the sum of `sizes`.
void fit_to_total(std::vector<int64_t>& wanted, std::span<const int64_t> sizes, int64_t total);

}  // namespace millrace
