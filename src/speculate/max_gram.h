// MaxGram: guesses the next tokens of a text from statistics alone (Chen et al., 2024, Cascade Speculative Drafting for
// Even Faster LLM Inference). It searches the text for the longest earlier match of the text's last tokens, and repeats
// what followed there. If there is no match, it uses a bigram model: the token that most often followed the last one in
// any text that was read. The bigram table has a fixed size. A stream uses the bigrams of all streams that it may share
// prefixes with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/sequence.h"

namespace millrace {

class MaxGram {
 public:
  // `bigrams`: entries of the table.
  explicit MaxGram(int64_t bigrams) : entries_(bigrams) {}
  static int64_t bytes(int64_t bigrams) { return bigrams * static_cast<int64_t>(sizeof(Entry)); }

  // Adds to the table the bigrams that end at the stream's tokens from index `from` on.
  void read(const Sequence& stream, int64_t from);
  // Guesses up to `most` tokens that may follow the stream's tokens and the first `drafted` tokens of its draft. Writes
  // them to stream.draft.tokens from index `drafted` on, which must have room for `most` tokens. Returns their number.
  int64_t guess(Sequence& stream, int64_t drafted, int64_t most);

 private:
  struct Entry {
    uint64_t key = 0;  // key of a token in a scope; 0: none
    TokenId next = 0;
    int32_t count = 0;
  };
  Entry& entry_of(uint64_t key) { return table_[static_cast<size_t>(key % static_cast<uint64_t>(entries_))]; }

  int64_t entries_;
  std::vector<Entry> table_;  // empty until something is read: some drafters are created only to report their sizes
};

}  // namespace millrace
