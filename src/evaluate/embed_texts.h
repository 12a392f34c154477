// Embeds texts as a model declares: task prefix, pooling, dense layers, normalization. For `millrace embed` and the C
// interface.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "evaluate/embedder.h"

namespace millrace {

struct EmbedOptions {
  std::string pooling;      // name of a Pooling; "": the model's own
  std::string prompt_name;  // task whose prefix is put before each text; "": the model's own default
  int64_t dimensions = 0;   // first values that are kept; 0: all
  bool raw = false;         // do not normalize vectors to length 1
  std::string kv_format = "f16";
  int64_t batch_tokens = 512;
  int threads = 0;  // 0: all cores
};

// Receives one vector of a text, or with pooling "none" one per token. `tokens`: number of tokens of the
// text, including its prefix.
using EmbeddingSink = std::function<void(size_t text, size_t tokens, std::vector<float> row)>;

// `sink` receives the texts in their order. Errors: user (an option, an empty or too long text), and those of reading
// the model's declarations.
Result<void> embed_texts(std::shared_ptr<const LanguageModel> model, const std::vector<std::string>& texts,
                         const EmbedOptions& options, const EmbeddingSink& sink);

}  // namespace millrace
