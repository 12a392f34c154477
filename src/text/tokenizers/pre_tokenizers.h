// PreTokenizer: splits text into words; BPE merges only within a word. It is a pipeline of stages. Each stage splits
// every piece of the previous stage at the matches of one pattern; the matches and the gaps between them become pieces.
// It is selected by the name in a GGUF (tokenizer.ggml.pre) or built from the regexes of a tokenizer.json. Immutable,
// shared between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"
#include "text/tokenizers/scanners.h"

namespace millrace {

class PreTokenizer {
 public:
  // "" and "default" select GGUF's fallback. Errors: unsupported (an unknown name, which the message has).
  static Result<PreTokenizer> from_name(std::string_view name);
  static Result<PreTokenizer> from_patterns(const std::vector<std::string>& patterns);

  // Fills `ends` with the end offsets of the words, ascending; the last is text.size(). An empty text has no words.
  // `scratch`: working memory. text.size() < 2^32. Takes time proportional to the text's length.
  void split(std::string_view text, std::vector<uint32_t>& ends, std::vector<uint32_t>& scratch) const;

 private:
  struct Stage {
    Scanner scan = nullptr;  // nullptr: regex
    bool only_at_end = false;
    std::optional<Regex> regex;
  };
  static void split_piece(const Stage& stage, std::string_view text, uint32_t begin, uint32_t end, int64_t& work,
                          std::vector<uint32_t>& ends);
  std::vector<Stage> stages_;
};

// Returns the patterns of a named pre-tokenizer, in order; empty if the name is unknown.
std::vector<std::string_view> pre_tokenizer_patterns(std::string_view name);

}  // namespace millrace
