// TextVectors: vectors of texts and questions for an index. ModelTextVectors computes them with an embedding model; in
// tests, another class stands for it. Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

class LanguageModel;

class TextVectors {
 public:
  virtual ~TextVectors() = default;
  virtual int64_t width() const = 0;
  // Return vectors of length 1. Errors: user (a text without tokens), those of the model.
  virtual Result<std::vector<std::vector<float>>> of_documents(std::span<const std::string> texts) = 0;
  virtual Result<std::vector<float>> of_question(const std::string& text) = 0;
};

// Texts receive the prefixes that the model declares for documents ("document" or "passage") and questions ("query"),
// and are cut to the model's context, at most 8192 tokens. `threads`: 0: all cores. Errors: unsupported (no tokenizer),
// those of Embedder::create and VectorHead::read.
Result<std::unique_ptr<TextVectors>> model_text_vectors(std::shared_ptr<const LanguageModel> model, int threads);

}  // namespace millrace
