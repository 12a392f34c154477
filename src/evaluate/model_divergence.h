// Compares a model with a reference model of the same vocabulary on one text: both perplexities, and the divergence of
// the distributions. Both models are in memory. Each window of the text runs through one model and then the other, so
// that no logits are stored. The windows are those of `millrace perplexity`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "evaluate/divergence.h"
#include "run/language_model.h"

namespace millrace {

struct ModelDivergence {
  int64_t tokens = 0;  // number of scored tokens
  double perplexity = 0, reference_perplexity = 0;
  DivergenceSummary divergence;
};

struct DivergenceText {
  std::string name;  // for messages
  std::string text;
  int64_t context = 0;                   // tokens of a window; 0: the model's context, at most 512
  int64_t windows = 0;                   // maximum number of windows; 0: all
  int threads = 0;                       // 0: all cores
  std::function<void(double)> progress;  // may be null
};

// Errors: user (the text has fewer than two tokens, the vocabularies differ), unsupported (no tokenizer), resource.
Result<ModelDivergence> compare_models(std::shared_ptr<const LanguageModel> reference,
                                       std::shared_ptr<const LanguageModel> model, const DivergenceText& text);

}  // namespace millrace
