// SentencePieceNormalizer: normalizes text like a SentencePiece model. It applies the precompiled character map (NFKC
// etc.), removes extra white space, and adds the dummy prefix. Its input and output have plain spaces: callers replace
// U+2581 in tokens and text by ' '. Immutable, shared between threads.
//
// precompiled_charsmap: uint32 trie_bytes | trie: uint32 units of a Darts double array | NUL-terminated strings.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// Returns the maximum bytes of text that a character map writes for one of its keys.
size_t charsmap_growth(std::span<const uint8_t> map);

class SentencePieceNormalizer {
 public:
  // Errors: corrupt (the sizes in the map are inconsistent).
  static Result<SentencePieceNormalizer> create(const TokenizerSpec& spec);

  // Appends the normalized form of `text` to `out`, after a space if `space_prefix`.
  void normalize(std::string_view text, bool space_prefix, std::string& out) const;

 private:
  struct Step {
    std::string_view output;
    size_t consumed;
  };
  Step next(std::string_view text) const;  // consumes the longest mapped prefix, else one character

  std::vector<uint32_t> units_;
  std::string strings_;
  bool remove_extra_ = false;
  bool suffix_ = false;
};

}  // namespace millrace
