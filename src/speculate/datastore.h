// Datastore: a text of tokens and its suffix array in a mapped file. Binary search finds every occurrence of a sequence
// and the tokens that follow it. `millrace datastore` writes it; the drafter rest drafts from it.
//
//   header   kDatastoreHeader bytes: magic, version, vocabulary, its hash, tokens, checksums
//   tokens   [n] int32; the number after the vocabulary's last token ends a text
//   suffixes [n] int32, suffix_array() of the tokens
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "millrace/token.h"
#include "tensor/mapped_file.h"

namespace millrace {

inline constexpr int64_t kDatastoreHeader = 64;
inline constexpr int64_t kMaxDatastoreTokens = INT32_MAX - 1;

// Hash of a vocabulary's tokens in their order; never 0.
uint64_t vocabulary_hash(std::span<const std::string> tokens);

// `tokens` are in [0, vocab]. Errors: user (no tokens, too many tokens, or a token out of range), resource (memory or
// disk).
Result<void> write_datastore(const std::string& path, int64_t vocab, uint64_t vocabulary,
                             std::span<const TokenId> tokens);

class Datastore {
 public:
  // Checks the header and the file's size. Errors: corrupt.
  static Result<Datastore> open(const std::string& path);

  // Reads the whole file and checks that it is unchanged since it was written. Errors: corrupt.
  Result<void> verify() const;
  // Checks that the file belongs to this vocabulary. `vocabulary`: its hash; 0: not known, so only the sizes are
  // compared. Errors: user (another vocabulary).
  Result<void> check_vocabulary(int64_t vocab, uint64_t vocabulary) const;

  int64_t vocab() const { return vocab_; }
  int64_t tokens() const { return tokens_; }

  // The occurrences of one sequence: a range of the suffix array.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t count() const { return end - begin; }
  };
  Range all() const { return {0, tokens_}; }
  // `range`: suffixes that share their first `depth` tokens. Returns the part of it in which `token` follows these
  // tokens.
  Range narrow(Range range, int64_t depth, TokenId token) const;
  Range find(std::span<const TokenId> sequence) const;
  // Returns the token after the first `depth` tokens of the suffix at `place` in the suffix array; -1: the text ends
  // there.
  TokenId after(int64_t place, int64_t depth) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  const int32_t* text_ = nullptr;
  const int32_t* suffixes_ = nullptr;
  int64_t vocab_ = 0, tokens_ = 0;
  uint64_t vocabulary_ = 0, sum_ = 0;
};

}  // namespace millrace
