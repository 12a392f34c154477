// Learns a SentencePiece-style BPE vocabulary with byte fallback and encodes with it. (Sennrich et al. 2016,
// "Neural Machine Translation of Rare Words with Subword Units"; Kudo & Richardson 2018, "SentencePiece".)
//
//   id 0 <unk>, 1 <s>, 2 </s>, 3..258 <0x00>..<0xFF>, then merged pieces by order of merging, then
//   single characters. Score = -(id - 259) for pieces: what was merged first wins.
//
// A space is U+2581, and a word carries the space before it. A merge joins letters with letters, or other
// signs with other signs, and never crosses a word start or a line end: a newline is always byte <0x0A>.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

constexpr TokenId kUnkId = 0, kBosId = 1, kEosId = 2, kFirstByteId = 3, kFirstPieceId = 259;

// Errors: user when the text has more characters, or fewer pairs to merge, than `vocab_size` asks for.
Result<TokenizerSpec> train_bpe(const std::vector<std::string>& texts, int vocab_size = 4096);

// The vocabulary with these pieces from id 259 on.
TokenizerSpec vocabulary_of(const std::vector<std::string>& pieces);

// Encodes with a spm vocabulary exactly as the SentencePiece BPE algorithm does over the whole text, one
// word at a time with a cache: valid because no piece of train_bpe holds U+2581 but in front.
// Thread-safety: one thread (the cache).
class BpeEncoder {
 public:
  explicit BpeEncoder(const TokenizerSpec& spec);

  // Space prefix as the spec says; no BOS or EOS.
  std::vector<TokenId> encode(std::string_view text);

  // The same without cutting into words, in quadratic time: what encode() must equal.
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
