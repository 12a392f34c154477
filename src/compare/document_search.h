// Document search: temperature and scale of the document context `ape` (context/contexts/ape.cc) for a model and a kind
// of text. For every pair of a grid, it measures on the cases of a text how far the predictions behind the documents
// are from those of a plain prompt. The documents are computed once and copied for every pair.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compare/document_cases.h"

namespace millrace {

struct DocumentSearchOptions {
  int threads = 0;  // 0: all cores
  DocumentCut cut;
  int64_t cases = 16;  // at most
  std::vector<double> temperatures = {1, 0.9, 0.8, 0.7, 0.6, 0.5};
  std::vector<double> scales = {1, 0.9, 0.8, 0.7, 0.6};
  std::string kv_format = "f16";
};

struct ScoredWeights {
  double temperature = 1, scale = 1;
  DocumentScore score;  // the mean over cases

  std::string use() const;  // "context=ape:T=0.9,S=0.9"
};

struct FoundWeights {
  int64_t cases = 0;
  double plain_nll = 0;
  std::vector<ScoredWeights> grid;  // temperatures in order, of each all scales
  size_t best = 0;                  // the least divergence; of equal ones the first
  size_t neutral = 0;               // T = S = 1, where the grid has it; else the first
};

// Errors: user (a text that is too short, values out of range), unsupported (a model without such contexts), resource.
Result<FoundWeights> search_document_weights(const std::shared_ptr<const LanguageModel>& model,
                                             std::span<const TokenId> tokens, const DocumentSearchOptions& options);

}  // namespace millrace
