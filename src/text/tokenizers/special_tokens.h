// SpecialTokens: splits text at the tokens that are never produced by merging: always at user-defined ones, and at
// control and unknown ones if the caller requests it (parse_special). Leftmost, then longest match. Immutable.
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
  std::vector<Fragment> split(std::string_view text, bool parse_control) const;

 private:
  struct Set {
    ByteTrie trie;
    std::array<bool, 256> first{};  // first bytes of all tokens
  };
  enum Flag : uint8_t { kLstrip = 1, kRstrip = 2, kSingleWord = 4 };
  static void add(Set& set, std::string_view text, TokenId id);

  Set always_, with_control_;
  std::vector<uint8_t> flags_;  // by id; empty if no token has any
};

}  // namespace millrace
