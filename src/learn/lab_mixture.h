// LabMixture: the training examples of the lab models: tasks of the train split in the chat format, generated when they
// are needed, mixed with stories. Example i depends only on (seed, i, longest prompt), so a resumed run continues
// exactly. Thread-safety: none (the encoder's cache).
#pragma once

#include <string>
#include <vector>

#include "lab/task.h"
#include "learn/bpe_trainer.h"
#include "learn/lab_examples.h"

namespace millrace {

// Ids of the control tokens of the chat format, the last ones of the vocabulary.
struct LabControls {
  TokenId system, user, assistant;
};
LabControls lab_controls(const TokenizerSpec& spec);

// The vocabulary, learned from examples and stories: digits stand alone, and the three roles are control tokens.
Result<TokenizerSpec> learn_lab_vocabulary(const std::vector<std::string>& stories, int64_t size);
// The vocabulary with these pieces, as write_lab_vocabulary() lists them.
Result<void> write_lab_vocabulary(const std::string& path, const TokenizerSpec& spec);
Result<TokenizerSpec> read_lab_vocabulary(const std::string& path);
// The vocabulary with these tokens, all of them. Errors: user (not one of those above).
Result<TokenizerSpec> lab_vocabulary(const std::vector<std::string>& tokens);

// The chat format as a template (Jinja): <s>, then <|role|> text </s> for each message.
std::string lab_chat_template();

class LabMixture final : public LabExamples {
 public:
  LabMixture(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context);

  LabExample example(uint64_t index, int64_t longest) override;
  // One item as an example; only its answer has a weight. Empty if it is longer than the context.
  LabExample encode(const LabItem& item, bool train);

  int64_t context() const { return context_; }

 private:
  void append(const std::string& text, float weight, LabExample& to);
  void append_prompt(const LabItem& item, const std::string& text, bool train, LabExample& to);
  LabExample story(LabRandom& random);
  LabExample drill(LabRandom& random, int64_t longest) const;
  // Items of a task per story, so that every task has its share of the tokens.
  const std::vector<double>& frequencies(int64_t longest);

  BpeEncoder encoder_;
  LabControls controls_;
  std::vector<TokenId> digits_;
  std::vector<std::string> stories_;
  uint64_t seed_;
  int64_t context_, vocab_;
  int64_t frequencies_of_ = 0;
  std::vector<double> frequencies_;
};

}  // namespace millrace
