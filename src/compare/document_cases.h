// DocumentCase: a piece of continuous text, cut into documents and a continuation that refers to them. The likelihood
// of the continuation shows the loss due to a document context (docs/document-contexts.md). Used by the suite
// `documents` and by document_search.h.
//
//   text     ... [ document 0 | document 1 | ... | t | scored tokens ] [ the next case ...
//   prompt   <s> [ document 0 | document 1 | ... | t | scored tokens ]      t is not predicted from a document
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "compare/suite.h"
#include "millrace/engine.h"

namespace millrace {

struct DocumentCut {
  int64_t documents = 4;  // number of documents in a case
  int64_t size = 128;     // tokens of a document
  int64_t scored = 128;   // number of scored tokens after the documents

  int64_t tokens() const { return documents * size + 1 + scored; }
  int64_t longest() const { return tokens() + 1; }  // tokens of the longest prompt, with a start token
};

struct DocumentCase {
  std::vector<TokenId> prompt;
  std::vector<PromptDocument> documents;
  int64_t scored = 0;  // number of last tokens that are scored
};

// Returns at most `most` disjoint cases, from the text's beginning on. If `tokens` begins with a start token, every
// case does.
std::vector<DocumentCase> cut_documents(const LanguageModel& model, std::span<const TokenId> tokens,
                                        const DocumentCut& cut, int64_t most);

// Returns log p of the whole vocabulary at each scored token of a case, [scored, vocab]. `context`: as
// Request::document_context. Errors: those of the engine, cancelled.
Result<std::vector<float>> predict_behind(Engine& engine, const DocumentCase& one, const std::string& context,
                                          int64_t vocab, const SuiteWanted& wanted);

// Means over the scored tokens.
struct DocumentScore {
  double nll = 0;       // negative log-likelihood of the actual token, in nats
  double kl = 0;        // Kullback-Leibler divergence from the predictions `base`, in nats
  double same_top = 0;  // share of tokens for which both have the same likeliest token
};
DocumentScore score_behind(const DocumentCase& one, std::span<const float> base, std::span<const float> own);

}  // namespace millrace
