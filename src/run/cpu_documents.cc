#include "run/cpu_documents.h"

#include <utility>

#include "attention/pattern_layers.h"
#include "run/context_refresh.h"

namespace millrace {

Result<std::unique_ptr<CpuDocuments>> CpuDocuments::load(const LanguageModel& model, const EnginePlan& plan,
                                                         std::shared_ptr<ThreadPool> threads,
                                                         const ForwardLimits& limits) {
  auto made = std::unique_ptr<CpuDocuments>(new CpuDocuments());
  const ArchSpec& spec = model.parts().model->spec();
  const EngineOptions& options = plan.options;
  const DocumentContext* context = plan.documents.get();
  if (context && context->link_rows()) {
    MILLRACE_TRY(made->links_, LinkRows::load(*context->link_rows(), spec.width, model.parts().accounts));
  }
  if (context && context->encoder()) {
    MILLRACE_TRY(made->documents_,
                 EncodedDocuments::load(*context->encoder(), model, std::move(threads), plan.formats, limits.tokens));
  } else if (context && plan.formats.encodes() && pattern_layer_sets(limits.switches.attention.pattern) == 0 &&
             check_movable(spec, "context").ok()) {
    const int64_t tokens = options.document_tokens > 0 ? options.document_tokens : limits.context;
    MILLRACE_TRY(made->rows_, DocumentRows::create(model, std::move(threads), limits, tokens, options.prefix_cache));
  }
  return made;
}

void CpuDocuments::attach(ModelRunner& runner) {
  runner_ = &runner;
  if (documents_) runner.hooks().add(*documents_);
}

Result<void> CpuDocuments::check_encoded(const DocumentTokens& documents) const {
  if (!documents_)
    return Error::user(
        "context cepe: the engine has no encoder; start it with one, context=cepe:model=FOLDER, or choose another "
        "context");
  return documents_->check(documents);
}

Result<void> CpuDocuments::put_links(const LinkRowsChoice& choice, Request& request) const {
  if (!links_)
    return Error::user(
        "context kvlink: link_embeddings: is an option of the engine; start it with "
        "context=kvlink:links=N,link_embeddings=FILE");
  return links_->put(choice, request);
}

Result<void> CpuDocuments::check_parts(const ContextPlan& plan) const {
  return rows_ ? rows_->kept().check(plan) : Result<void>();
}

bool CpuDocuments::hold_documents(StreamRef stream, const DocumentTokens* documents, int64_t& budget) {
  return !documents || documents_->hold(*documents, stream.own.lease, budget);
}

bool CpuDocuments::hold_part(StreamRef stream, const ContextPart& part, int64_t& budget) {
  return rows_->hold(stream, part, budget);
}

int64_t CpuDocuments::put_part(StreamRef stream, const ContextPart& part, int64_t count) {
  return rows_->put(stream, part, count, *runner_);
}

// Hooks of the steps must not see these passes.
void CpuDocuments::refresh(StreamRef stream, const ContextPlan& plan, std::span<const size_t> stale) {
  runner_->start();
  const ForwardHooks hooks = std::exchange(runner_->hooks(), ForwardHooks());
  refresh_parts(stream, plan, stale, *runner_);
  runner_->start();
  runner_->hooks() = hooks;
}

Result<void> CpuDocuments::check_blocks() const { return rows_ ? rows_->kept().check_blocks() : Result<void>(); }

}  // namespace millrace
