// Finds the temperature and scale of the document context `ape` (context/contexts/ape.cc) that suit a model and a kind
// of text. For every pair of a grid, it measures the divergence of the predictions after the documents from those with
// a plain prompt, on cases from a text. The documents are computed once and copied for every pair.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compare/document_cases.h"

namespace millrace {

struct DocumentSearchOptions {
  int threads = 0;  // 0: all cores
  DocumentCut cut;
  int64_t cases = 16;  // maximum number of cases
  std::vector<double> temperatures = {1, 0.9, 0.8, 0.7, 0.6, 0.5};
  std::vector<double> scales = {1, 0.9, 0.8, 0.7, 0.6};
  std::string kv_format = "f16";
};

struct ScoredWeights {
  double temperature = 1, scale = 1;
  DocumentScore score;  // mean over the cases

  std::string use() const;  // "context=ape:T=0.9,S=0.9"
};

struct FoundWeights {
  int64_t cases = 0;
  double plain_nll = 0;
  std::vector<ScoredWeights> grid;  // all pairs, ordered by temperature, then by scale
  size_t best = 0;                  // index of the pair with the smallest divergence, the first one among equals
  size_t neutral = 0;               // index of T = S = 1 if the grid has it; otherwise 0
};

// Errors: user (the text is too short, or values are out of range), unsupported (the model does not support the
// context), resource.
Result<FoundWeights> search_document_weights(const std::shared_ptr<const LanguageModel>& model,
                                             std::span<const TokenId> tokens, const DocumentSearchOptions& options);

}  // namespace millrace
