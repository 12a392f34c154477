// StoryRows: training examples for models with a long context that are trained on stories alone. An example is one
// document: <s>, then random stories with an empty line between them, as in the text files that `millrace perplexity`
// reads. Each token attends to all tokens before it, including those of earlier stories. Not thread-safe, because of
// the encoder's cache.
#pragma once

#include <string>
#include <vector>

#include "learn/bpe_trainer.h"
#include "learn/lab_examples.h"

namespace millrace {

class StoryRows final : public LabExamples {
 public:
  StoryRows(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context);

  // Returns stories of `longest` characters, cut after a word, or fewer if they fill the context.
  LabExample example(uint64_t index, int64_t longest) override;

 private:
  BpeEncoder encoder_;
  std::vector<std::string> stories_;
  uint64_t seed_;
  int64_t context_;
};

}  // namespace millrace
