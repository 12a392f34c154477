// SpecialTokens: splits text at special tokens, which are never produced by merging. It always splits at user-defined
// tokens, and at control and unknown tokens if the caller requests it (parse_special). The leftmost match is used, and
// the longest of several at one position.
//
// Tokens with AddedTokenFlags::normalized are in a second set. As in Hugging Face tokenizers, a text is first split at
// the tokens of the first set. The text between them is normalized, and then split at the normalized forms of the
// second set's tokens. Immutable after the tokenizer's constructor, which calls add_normalized() for the second set.
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
    std::string_view text;  // ordinary text if id < 0
    TokenId id = -1;
  };
  // Returns the fragments in order, without empty texts.
  std::vector<Fragment> split(std::string_view text, bool parse_control) const {
    return split(text, parse_control ? with_control_ : always_);
  }
  // Splits a normalized text at the tokens that add_normalized() received.
  std::vector<Fragment> split_normalized(std::string_view text, bool parse_control) const {
    return split(text, parse_control ? normalized_with_control_ : normalized_always_);
  }

  // Returns the tokens with the flag `normalized`, in order of ids.
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
