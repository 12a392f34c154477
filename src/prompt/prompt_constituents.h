// Finds the sentences of a prompt and their constituents in tokens, for compressors that drop constituents. A sentence
// is parsed by a file of parses that has its words, or by rules for English; a part of the prompt that is itself a
// parse in brackets is read as such. Pure functions.
#pragma once

#include <vector>

#include "prompt/compression_task.h"
#include "prompt/constituents.h"
#include "prompt/penn_trees.h"

namespace millrace {

// A sentence: its tokens, and its constituents as ranges of the prompt's tokens.
struct PromptSentence {
  TokenRange tokens;
  Constituents constituents;
};

struct PromptSyntax {
  std::vector<PromptSentence> sentences;  // in order, of the tokens that may be dropped
  std::vector<char> markup;               // one flag a token; 1: a bracket or label of a parse
};

// `parses`: may be null.
PromptSyntax parse_prompt(const PromptView& prompt, const CompressionTask& task, const ParseFile* parses);

}  // namespace millrace
