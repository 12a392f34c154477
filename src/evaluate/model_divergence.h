// Compares a model with a reference that has the same vocabulary, on one text: both perplexities, and the distance of
// the distributions. Both models are in memory, and each window of the text runs through one after the other, so that
// no logits are stored. The windows are those of `millrace perplexity`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "evaluate/divergence.h"
#include "run/language_model.h"

namespace millrace {

struct ModelDivergence {
  int64_t tokens = 0;  // scored
  double perplexity = 0, reference_perplexity = 0;
  DivergenceSummary divergence;
};

struct DivergenceText {
  std::string name;  // for messages
  std::string text;
  int64_t context = 0;                   // tokens of a window; 0: the model's, at most 512
  int64_t windows = 0;                   // at most; 0: all
  int threads = 0;                       // 0: all cores
  std::function<void(double)> progress;  // may be null
};

// Errors: user (a text of less than two tokens, another vocabulary), unsupported (no tokenizer), resource.
Result<ModelDivergence> compare_models(std::shared_ptr<const LanguageModel> reference,
                                       std::shared_ptr<const LanguageModel> model, const DivergenceText& text);

}  // namespace millrace
