// PreparedRequest: a request with what it names, constructed once: its evictor, its context and the plan of its
// documents. EngineCore::prepare() makes it on any thread, EngineCore::add() queues it on the engine's.
#pragma once

#include <memory>

#include "context/document_context.h"
#include "engine/loop_context.h"
#include "kv/token_evictor.h"
#include "millrace/constraint.h"
#include "millrace/request.h"

namespace millrace {

struct PreparedRequest {
  Request request;  // with the links of its context, and without the documents that an encoder reads
  std::shared_ptr<const EvictionRule> evictor;     // null: it keeps all its keys and values
  std::shared_ptr<const DocumentContext> context;  // null: its documents, if any, are tokens like any others
  ContextPlan plan;                                // of documents that are computed apart
  DocumentTokens encoded;                          // documents that an encoder reads
  CompiledConstraint compiled;                     // held, so that the engine's thread never compiles

  // Its documents are computed apart from its other tokens.
  bool apart() const { return context && !context->encoder(); }
};

// Constructs what the request names, or takes it from the engine. Errors: user.
Result<PreparedRequest> name_members(const LoopContext& loop, const Request& request);

}  // namespace millrace
