#include "engine/prepared_request.h"

namespace millrace {

Result<PreparedRequest> name_members(const LoopContext& loop, const Request& request) {
  PreparedRequest prepared{.evictor = loop.evictor, .context = loop.documents};
  if (!request.document_context.empty()) {
    MILLRACE_TRY(prepared.context, make_document_context(request.document_context));
  }
  if (request.documents.empty()) prepared.context = nullptr;
  if (!request.evictor.empty()) {
    MILLRACE_TRY(prepared.evictor, make_eviction_rule(request.evictor));
  }
  return prepared;
}

}  // namespace millrace
