// ExecutorStream: what an executor keeps of one open stream between steps: how the stream's tokens are sampled and
// written, and which memory of documents it holds. The engine creates one with each stream and hands it back with every
// call; only the executor reads the parts of documents and drafts.
#pragma once

#include <memory>
#include <optional>

#include "flow/sequence.h"
#include "models/lora/adapter.h"
#include "sampling/answer_stops.h"
#include "sampling/chain.h"
#include "text/detokenizer.h"

namespace millrace {

struct DraftOdds;     // speculate/draft_odds.h
class DocumentLease;  // run/documents/encoded_documents.h
class RowsLease;      // run/documents/kept_rows.h

struct ExecutorStream {
  std::optional<SamplerChain> sampler;
  std::unique_ptr<Detokenizer> detokenizer;  // null: the model has no tokenizer, and events have ids only
  AnswerStops stop;
  bool scored = false;                   // needs the log-probabilities of its tokens, to rank the request's answers
  LoraMix adapters;                      // that it runs with
  std::shared_ptr<DocumentLease> lease;  // encoded documents that it holds; null while it does not run
  std::shared_ptr<RowsLease> rows;       // rows of the part that is being placed; null: none is
  const DraftOdds* odds = nullptr;       // odds of this step's drafted tokens, by index; null: not drawn, or not kept
};

// A stream in a call to its executor.
struct StreamRef {
  const Sequence& sequence;
  ExecutorStream& own;
};

}  // namespace millrace
