// LabMixture: the training examples of the lab models: items of the train split in the chat format, mixed with stories.
// Items are generated on demand. Example i depends only on (seed, i, maximum prompt length), so a resumed run continues
// exactly. Not thread-safe, because of the encoder's cache.
#pragma once

#include <string>
#include <vector>

#include "lab/task.h"
#include "learn/bpe_trainer.h"
#include "learn/lab_examples.h"

namespace millrace {

// Ids of the chat format's control tokens, which are the last tokens of the vocabulary.
struct LabControls {
  TokenId system, user, assistant;
};
LabControls lab_controls(const TokenizerSpec& spec);

// Learns a vocabulary from examples and stories. Each digit is a separate token, and the three roles are control
// tokens.
Result<TokenizerSpec> learn_lab_vocabulary(const std::vector<std::string>& stories, int64_t size);
// Write and read the pieces of a vocabulary.
Result<void> write_lab_vocabulary(const std::string& path, const TokenizerSpec& spec);
Result<TokenizerSpec> read_lab_vocabulary(const std::string& path);
// Returns the vocabulary with exactly these tokens. Errors: user (it is not a lab vocabulary).
Result<TokenizerSpec> lab_vocabulary(const std::vector<std::string>& tokens);

// Returns the chat format as a Jinja template: <s>, then <|role|> text </s> for each message.
std::string lab_chat_template();

class LabMixture final : public LabExamples {
 public:
  LabMixture(const TokenizerSpec& spec, std::vector<std::string> stories, uint64_t seed, int64_t context);

  LabExample example(uint64_t index, int64_t longest) override;
  // Encodes an item as an example, in which only the answer has a weight. Returns an empty example if it is longer than
  // the context.
  LabExample encode(const LabItem& item, bool train);

  int64_t context() const { return context_; }

 private:
  void append(const std::string& text, float weight, LabExample& to);
  void append_prompt(const LabItem& item, const std::string& text, bool train, LabExample& to);
  LabExample story(LabRandom& random);
  LabExample drill(LabRandom& random, int64_t longest) const;
  // Returns for each task the number of items per story, so that every task has its share of the tokens.
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
