// DocumentCase: a piece of a running text that is cut into documents and a continuation, which refers to them. How well
// a model predicts the continuation shows what a document context loses (docs/document-contexts.md). For the suite
// `documents` and for document_search.h.
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
  int64_t documents = 4;  // documents of a case
  int64_t size = 128;     // tokens of a document
  int64_t scored = 128;   // tokens behind the documents

  int64_t tokens() const { return documents * size + 1 + scored; }
  int64_t longest() const { return tokens() + 1; }  // tokens of the longest prompt, with a start token
};

struct DocumentCase {
  std::vector<TokenId> prompt;
  std::vector<PromptDocument> documents;
  int64_t scored = 0;  // its last tokens
};

// Disjoint cases from the text's beginning on, `most` at most. A start token at its beginning is that of every case.
std::vector<DocumentCase> cut_documents(const LanguageModel& model, std::span<const TokenId> tokens,
                                        const DocumentCut& cut, int64_t most);

// log p of the vocabulary before each scored token of a case, [scored, vocab]. `context`: as Request::document_context.
// Errors: of the engine, cancelled.
Result<std::vector<float>> predict_behind(Engine& engine, const DocumentCase& one, const std::string& context,
                                          int64_t vocab, const SuiteWanted& wanted);

// Means over the scored tokens.
struct DocumentScore {
  double nll = 0;       // for the actual token
  double kl = 0;        // from the predictions of `base`
  double same_top = 0;  // share of tokens where both have the same likeliest one
};
DocumentScore score_behind(const DocumentCase& one, std::span<const float> base, std::span<const float> own);

}  // namespace millrace
