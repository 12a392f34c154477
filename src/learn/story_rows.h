// StoryRows: the examples of models with a long context that are trained on stories alone. A row is one document: <s>,
// then stories drawn at random with an empty line between them, as in the text files that `millrace perplexity` reads.
// Each token attends to all before it, those of earlier stories too. Thread-safety: none (the encoder's cache).
#pragma once

#include <string>
#include <vector>

#include "learn/bpe_trainer.h"
#include "learn/lab_examples.h"

namespace millrace {

class StoryRows final : public LabExamples {
 public:
  StoryRows(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context);

  // `longest` characters of stories, cut after a word, or as many as fill the context.
  LabExample example(uint64_t index, int64_t longest) override;

 private:
  BpeEncoder encoder_;
  std::vector<std::string> stories_;
  uint64_t seed_;
  int64_t context_;
};

}  // namespace millrace
