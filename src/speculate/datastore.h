// Datastore: a text of tokens and its suffix array in a mapped file, which finds every occurrence of a sequence and
// what followed it by binary search. `millrace datastore` writes it; the drafter rest drafts from it.
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

// `tokens` are in [0, vocab]. Errors: user (none, too many, or one out of range), resource (memory, the disk).
Result<void> write_datastore(const std::string& path, int64_t vocab, uint64_t vocabulary,
                             std::span<const TokenId> tokens);

class Datastore {
 public:
  // Checks the header and the file's size. Errors: corrupt.
  static Result<Datastore> open(const std::string& path);

  // Reads the whole file and checks that it is unchanged since it was written. Errors: corrupt.
  Result<void> verify() const;
  // Errors: user (it is of another vocabulary). `vocabulary` 0: not known, so that only the sizes are compared.
  Result<void> check_vocabulary(int64_t vocab, uint64_t vocabulary) const;

  int64_t vocab() const { return vocab_; }
  int64_t tokens() const { return tokens_; }

  // Places in the suffix array: the occurrences of one sequence.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t count() const { return end - begin; }
  };
  Range all() const { return {0, tokens_}; }
  // Returns the part of the range, whose suffixes share their first `depth` tokens, that has `token` behind them.
  Range narrow(Range range, int64_t depth, TokenId token) const;
  Range find(std::span<const TokenId> sequence) const;
  // The token that a suffix has behind its first `depth` ones; -1: the text ends there.
  TokenId after(int64_t place, int64_t depth) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  const int32_t* text_ = nullptr;
  const int32_t* suffixes_ = nullptr;
  int64_t vocab_ = 0, tokens_ = 0;
  uint64_t vocabulary_ = 0, sum_ = 0;
};

}  // namespace millrace
