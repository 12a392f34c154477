// Detokenizer: converts a stream of token ids to text, in pieces that are always well-formed UTF-8. The bytes of an
// incomplete character are held back until the next token. Invalid bytes are replaced by U+FFFD, one per maximal
// invalid part (Unicode 15, section 3.9). Not thread-safe: use one object per stream.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace millrace {

// Converts arbitrary bytes to well-formed UTF-8.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  // Ends the stream: replaces an incomplete character by U+FFFD.
  std::string flush();
  size_t held_bytes() const { return held_.size(); }

 private:
  std::string held_;  // at most 3 bytes
};

struct DetokenizerOptions {
  bool skip_special = true;  // control tokens print nothing
  bool markers = false;      // with skip_special: markers of reasoning and tool calls are printed
  bool at_start = false;     // the stream begins the text: drop the space that SentencePiece adds
};

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DetokenizerOptions options = {});

  // Returns the text that `id` completes, which may be empty. Ids out of range print nothing.
  std::string push(TokenId id);
  std::string flush() { return utf8_.flush(); }

 private:
  const Tokenizer* tokenizer_;
  DetokenizerOptions options_;
  bool strip_space_;
  Utf8Stream utf8_;
};

}  // namespace millrace
