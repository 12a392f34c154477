// Splits the free text of a prompt into parts (documents, examples) and the question, for compressors that treat them
// differently. Prompts have no such structure of their own; it is found in line breaks. Pure functions.
//
//   "Document 1: ...\n" "Document 2: ...\n" "\n"  "Question: ...?"
//   [ part           ] [ part                 ]  [ question       ]    the last part of the user's last message
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "prompt/compressor.h"
#include "prompt/text_units.h"

namespace millrace {

enum class PartBreak {
  automatic,  // an empty line if a text has two of them or more, else a line break
  line,
  paragraph,  // an empty line
};
Result<PartBreak> find_part_break(std::string_view name);  // Errors: user

// Returns the parts of the tokens that are not fixed, in order. Empty lines belong to the part before them. Fixed
// tokens (1) belong to no part and separate parts.
std::vector<TokenRange> split_parts(std::span<const std::string> texts, std::span<const char> fixed, PartBreak by);

// Returns the tokens of the question: the last part of the last text of the user. `keep_last`: the number of its tokens
// instead; 0: a part. A text of one part with other texts before it is the question; alone, its last sentence is; a
// single sentence has no question. `count` is 0 if there is none.
TokenRange find_question(const PromptView& prompt, PartBreak by, int64_t keep_last);

}  // namespace millrace
