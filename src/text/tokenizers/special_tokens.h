// SpecialTokens: splits text at the tokens that are never produced by merging: always at user-defined ones, and at
// control and unknown ones if the caller requests it (parse_special). Leftmost, then longest match.
//
// Tokens with AddedTokenFlags::normalized are in a second set. As in Hugging Face tokenizers, a text is split at the
// tokens of the first set; the text between them is normalized and split at the normalized tokens of the second.
// Immutable after the tokenizer's constructor, which calls add_normalized() for the second set.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizers/byte_trie.h"

namespace millrace {

class SpecialTokens {
 public:
  explicit SpecialTokens(const TokenizerSpec& spec);

  struct Fragment {
    std::string_view text;  // ordinary text when id < 0
    TokenId id = -1;
  };
  // The fragments in order, without empty texts.
  std::vector<Fragment> split(std::string_view text, bool parse_control) const {
    return split(text, parse_control ? with_control_ : always_);
  }
  // Splits a normalized text by the tokens that add_normalized() received.
  std::vector<Fragment> split_normalized(std::string_view text, bool parse_control) const {
    return split(text, parse_control ? normalized_with_control_ : normalized_always_);
  }

  // Tokens with the flag `normalized`, by id.
  const std::vector<TokenId>& normalized_ids() const { return normalized_ids_; }
  // Makes split_normalized() match `text`, the normalized form of the token `id`. An empty text is never matched.
  void add_normalized(TokenId id, std::string_view text, TokenType type);

 private:
  struct Set {
    ByteTrie trie;
    std::array<bool, 256> first{};  // first bytes of all tokens
  };
  enum Flag : uint8_t { kLstrip = 1, kRstrip = 2, kSingleWord = 4 };
  static void add(Set& set, std::string_view text, TokenId id);
  std::vector<Fragment> split(std::string_view text, const Set& set) const;

  Set always_, with_control_, normalized_always_, normalized_with_control_;
  std::vector<TokenId> normalized_ids_;
  std::vector<uint8_t> flags_;  // by id; empty if no token has any
};

}  // namespace millrace
