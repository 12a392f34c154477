// MaxGram: guesses the next tokens of a text from statistics alone (Chen et al., 2024, Cascade Speculative Drafting for
// Even Faster LLM Inference). It repeats what followed the longest earlier occurrence of the text's last tokens in the
// text itself. If there is none, it uses a bigram model: the token that most often followed the last one in any text
// that was read. Its table has a fixed size. Streams use their own bigrams, and those of streams that they may share
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

  // Reads the stream's tokens from index `from` on; each follows the one before it.
  void read(const Sequence& stream, int64_t from);
  // Writes up to `most` tokens that may follow the stream's tokens and the first `drafted` of its draft to
  // stream.draft.tokens, behind the drafted ones; it has room for them. Returns their number.
  int64_t guess(Sequence& stream, int64_t drafted, int64_t most);

 private:
  struct Entry {
    uint64_t key = 0;  // key of a token in a scope; 0: none
    TokenId next = 0;
    int32_t count = 0;
  };
  Entry& entry_of(uint64_t key) { return table_[static_cast<size_t>(key % static_cast<uint64_t>(entries_))]; }

  int64_t entries_;
  std::vector<Entry> table_;  // empty until something is read: drafters are also made to be asked for their sizes
};

}  // namespace millrace
