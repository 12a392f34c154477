// DocumentPlacer: how an executor treats the documents of a context (context/document_context.h). Three forms exist: an
// encoder reads them (check_encoded(), hold_documents()), they are parts of the prompt whose keys move (refresh()), or
// their rows are kept elsewhere and put into the prompt (hold_part(), put_part()). An executor without a placer refuses
// contexts. Engine thread only, except the functions that check and put_links().
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "context/document_context.h"
#include "run/executors/executor_stream.h"

namespace millrace {

class DocumentPlacer {
 public:
  virtual ~DocumentPlacer() = default;

  // Refuses documents that are to be read by an encoder. Any thread. Errors: user, unsupported, resource.
  virtual Result<void> check_encoded(const DocumentTokens& /*documents*/) const {
    return Error::unsupported("context cepe: this executor has no encoder");
  }
  // Puts trained rows in place of the links of a request's documents. Any thread. Errors: user, unsupported.
  virtual Result<void> put_links(const LinkRowsChoice& /*choice*/, Request& /*request*/) const {
    return Error::unsupported("context kvlink: link_embeddings: this executor computes no keys and values");
  }
  // Refuses a plan whose parts cannot be computed here. Any thread. Errors: unsupported, resource.
  virtual Result<void> check_parts(const ContextPlan& /*plan*/) const { return {}; }
  // Returns true if the parts of all contexts are placed (ContextPlan::placed).
  virtual bool places_parts() const { return false; }

  // Pins the stream's encoded `documents` (null: it has none) and encodes missing ones. `budget`: in and out, tokens
  // that may still be encoded in this step. Returns false while documents are missing; the stream then skips this step.
  virtual bool hold_documents(StreamRef /*stream*/, const DocumentTokens* /*documents*/, int64_t& /*budget*/) {
    return true;
  }
  // Only if parts are placed: pins the part's rows for the stream and computes missing ones. `budget`: in and out,
  // tokens that may still be computed in this step. Returns false while rows are missing.
  virtual bool hold_part(StreamRef /*stream*/, const ContextPart& /*part*/, int64_t& /*budget*/) { return false; }
  // After hold_part() returned true: stores the next `count` rows as the stream's, whose blocks cover them. Returns the
  // number of rows that were not computed for this stream.
  virtual int64_t put_part(StreamRef /*stream*/, const ContextPart& /*part*/, int64_t /*count*/) { return 0; }
  // Computes tokens of parts of the stream's plan again (ContextPart::refreshes()). `stale`: indices of these parts.
  // Not between forward() and choose().
  virtual void refresh(StreamRef /*stream*/, const ContextPlan& /*plan*/, std::span<const size_t> /*stale*/) {}
  // Checks that every block of documents that are kept outside the pool has as many references as holders. Errors:
  // internal.
  virtual Result<void> check_blocks() const { return {}; }
};

}  // namespace millrace
