// Learns a SentencePiece-style BPE vocabulary with byte fallback, and encodes with it. (Sennrich et al. 2016, "Neural
// Machine Translation of Rare Words with Subword Units"; Kudo & Richardson 2018, "SentencePiece".)
//
//   id 0 <unk>, 1 <s>, 2 </s>, 3..258 <0x00>..<0xFF>, then merged pieces by order of merging, then
//   single characters. Score = -(id - 259) for pieces: the earliest merge wins.
//
// A space is encoded as U+2581, and a word includes the space before it. A merge joins letters with letters, or other
// characters with other characters. No merge crosses the start of a word or the end of a line; a newline is always byte
// <0x0A>.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

constexpr TokenId kUnkId = 0, kBosId = 1, kEosId = 2, kFirstByteId = 3, kFirstPieceId = 259;

// Errors: user (the text has too many different characters, or too few pairs to merge, for `vocab_size`).
Result<TokenizerSpec> train_bpe(const std::vector<std::string>& texts, int vocab_size = 4096);

// Returns the vocabulary with these pieces from id 259 on.
TokenizerSpec vocabulary_of(const std::vector<std::string>& pieces);

// Encodes with an spm vocabulary. The result equals that of the SentencePiece BPE algorithm over the whole text. Words
// are encoded separately, with a cache. This is valid because pieces of train_bpe() contain U+2581 only as their first
// character. Not thread-safe, because of the cache.
class BpeEncoder {
 public:
  explicit BpeEncoder(const TokenizerSpec& spec);

  // Adds a space prefix if the spec says so; no BOS or EOS.
  std::vector<TokenId> encode(std::string_view text);

  // Encodes without splitting into words, in quadratic time. Serves as the reference for encode().
  std::vector<TokenId> encode_whole(std::string_view text) const;

  std::string decode(const std::vector<TokenId>& ids) const;

 private:
  std::vector<TokenId> merge(std::string_view escaped) const;
  std::string escape(std::string_view text) const;

  TokenizerSpec spec_;
  std::unordered_map<std::string, TokenId> ids_;
  std::unordered_map<std::string, std::vector<TokenId>> cache_;
};

}  // namespace millrace
