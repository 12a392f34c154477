// GuessedChain: chains drafted by a model whose own decoding is speculated. Statistics (max_gram.h) guess the next
// tokens of each chain, one pass of the draft model verifies the guesses of all streams, and the chain is what the
// model draws: the guesses change the number of its passes, not the chain.
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

// Data from which a stream's guesses are made, and the state of its draft model.
struct ChainMemory : DraftMemory {
  int64_t read = 0;  // tokens of the stream that MaxGram has read
  // as draft.stored, where that is not kAll and less: number of tokens that a drafter of trees has observed
  int64_t valid = 0;
  int64_t keyed = 0;  // first tokens of the draft that the model has run
};

class GuessedChain {
 public:
  // At most `guesses` tokens are guessed for one pass.
  GuessedChain(int64_t guesses, int64_t bigrams) : guesses_(guesses), grams_(bigrams) {}

  struct Link {
    const DraftChunk* chunk = nullptr;
    int64_t wanted = 0;  // tokens of the chain
    int64_t done = 0;    // tokens of the chain that the draft has
    int64_t guessed = 0;
    int64_t picks = 0;  // index of its first one
  };
  // Sets the first tokens of the drafts of the chunks that have one: `most` tokens, or as many as are planned. `picks`:
  // whether picks_of() is asked for the model's likeliest tokens.
  void draft(std::span<const DraftChunk> chunks, int64_t most, bool picks, DraftModel& model);
  // After draft(): the model's picks at each token of the chain of the `index`-th chunk with a draft.
  std::span<const DraftPick> picks_of(size_t index) const {
    return std::span(picks_).subspan(static_cast<size_t>(all_[index].picks), static_cast<size_t>(all_[index].done));
  }
  std::span<const Link> links() const { return all_; }
  // As Drafter::follow().
  void follow(std::span<const DraftChunk> chunks, DraftModel& model);
  MaxGram& grams() { return grams_; }

 private:
  void begin(std::span<const DraftChunk> chunks, int64_t most);
  int64_t first_missing(const DraftChunk& chunk) const;

  int64_t guesses_;
  MaxGram grams_;
  std::vector<Link> all_;         // links of the step
  std::vector<size_t> running_;   // those that lack tokens, by index
  std::vector<DraftRun> runs_;    // ... of the next pass
  std::vector<DraftPick> picks_;  // picks of all chains, `wanted` each
};

}  // namespace millrace
