// GuessedChain: drafts chains with a model whose own decoding is speculative. Statistics (max_gram.h) guess the next
// tokens of each chain, and one pass of the draft model verifies the guesses of all streams. A chain consists of the
// tokens that the model draws, so guesses change the number of passes, not the chain.
//
//   stream   the cat sat | chain 0: -              guessed: on the     the model draws: on a         chain: on a
//            the cat sat | chain 2: on a           guessed: mat .      the model draws: mat . It     chain: on a mat .
//            It
#pragma once

#include <span>
#include <vector>

#include "speculate/draft_model.h"
#include "speculate/max_gram.h"

namespace millrace {

// A stream's progress: tokens that the statistics and the draft model have read.
struct ChainMemory : DraftMemory {
  int64_t read = 0;  // tokens of the stream that MaxGram has read
  // Number of tokens that a drafter of trees has observed. Replaces draft.stored if that is smaller and not kAll.
  int64_t valid = 0;
  int64_t keyed = 0;  // first tokens of the draft that the model has run
};

class GuessedChain {
 public:
  // `guesses`: maximum number of tokens guessed for one pass. `bigrams`: entries of the statistics' table.
  GuessedChain(int64_t guesses, int64_t bigrams) : guesses_(guesses), grams_(bigrams) {}

  struct Link {
    const DraftChunk* chunk = nullptr;
    int64_t wanted = 0;  // tokens of the chain
    int64_t done = 0;    // tokens of the chain that the draft has
    int64_t guessed = 0;
    int64_t picks = 0;  // index of the chain's first pick in picks_
  };
  // For each chunk with a draft, sets the draft's first tokens: min(`most`, DraftChunk::drafted). `picks`: true:
  // picks_of() will be called for the model's likeliest tokens.
  void draft(std::span<const DraftChunk> chunks, int64_t most, bool picks, DraftModel& model);
  // After draft(): returns the model's picks for each token of a chain. `index`: of the chunk among those with a draft.
  std::span<const DraftPick> picks_of(size_t index) const {
    return std::span(picks_).subspan(static_cast<size_t>(all_[index].picks), static_cast<size_t>(all_[index].done));
  }
  std::span<const Link> links() const { return all_; }
  // See ModelDrafter::follow().
  void follow(std::span<const DraftChunk> chunks, DraftModel& model);
  MaxGram& grams() { return grams_; }

 private:
  void begin(std::span<const DraftChunk> chunks, int64_t most);
  int64_t first_missing(const DraftChunk& chunk) const;

  int64_t guesses_;
  MaxGram grams_;
  std::vector<Link> all_;         // links of the step
  std::vector<size_t> running_;   // indices of the links that lack tokens
  std::vector<DraftRun> runs_;    // runs of the next pass
  std::vector<DraftPick> picks_;  // picks of all chains, `wanted` each
};

}  // namespace millrace
