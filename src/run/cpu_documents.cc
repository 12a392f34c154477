#include "run/cpu_documents.h"

#include <fmt/format.h>

#include <utility>

#include "attention/pattern_layers.h"
#include "run/context_check.h"
#include "run/context_refresh.h"
#include "run/evictor_check.h"
#include "run/kv_places.h"

namespace millrace {

Result<std::unique_ptr<CpuDocuments>> CpuDocuments::load(const LanguageModel& model, const EngineOptions& options,
                                                         std::shared_ptr<ThreadPool> threads,
                                                         const ForwardLimits& limits, bool encodes) {
  auto made = std::unique_ptr<CpuDocuments>(new CpuDocuments(model));
  const ArchSpec& spec = model.parts().model->spec();
  MILLRACE_TRY(const auto context, make_document_context(options.document_context));
  if (context && context->link_rows()) {
    MILLRACE_TRY(made->links_, LinkRows::load(*context->link_rows(), spec.width, model.parts().accounts));
  }
  if (context && context->encoder()) {
    MILLRACE_TRY(made->documents_,
                 EncodedDocuments::load(*context->encoder(), model, std::move(threads), options, limits.tokens));
  } else if (context && encodes && pattern_layer_sets(limits.switches.attention.pattern) == 0 &&
             check_movable(spec, "context").ok()) {
    const int64_t tokens = options.document_tokens > 0 ? options.document_tokens : limits.context;
    MILLRACE_TRY(made->rows_, DocumentRows::create(model, std::move(threads), limits, tokens, options.prefix_cache));
  }
  return made;
}

void CpuDocuments::attach(ModelRunner& runner, bool draft, bool features, bool self) {
  runner_ = &runner;
  draft_ = draft;
  features_ = features;
  self_ = self;
  if (documents_) runner.hooks().add(*documents_);
}

namespace {

// Summaries are of blocks of a stream, and a document begins anywhere in one of its prompt. Where answers alone choose
// by them, they can be computed when the prompt is complete, from keys that have moved to their places.
Result<void> check_context_pattern(const AttentionPattern* pattern, bool weighs) {
  if (pattern_layer_sets(pattern) == 0) return {};
  const DynamicPattern* dynamic = dynamic_pattern(pattern);
  if (!dynamic || pattern->phase() != PatternPhase::decode)
    return Error::unsupported(fmt::format(
        "context: attention {} stores rows of its own beside the keys, which do not move to where a document "
        "stands; use a static pattern{}",
        pattern->text(), dynamic ? ", or phase=decode" : ""));
  if (dynamic->line_blocks() > 0)
    return Error::unsupported(fmt::format(
        "context: attention {}: lines are found by queries of a prompt in order; use heads=b or a", pattern->text()));
  if (weighs)
    return Error::unsupported(fmt::format(
        "context: attention {}: answers weigh the documents' keys anew, and would see all of them; use a static "
        "pattern, or another context",
        pattern->text()));
  return {};
}

}  // namespace

Result<void> CpuDocuments::check_context(bool weighs) const {
  MILLRACE_TRY_VOID(check_context_pattern(runner_->limits().switches.attention.pattern, weighs));
  const KvLayout& layout = runner_->kv().layout();
  if (draft_ || features_)
    return Error::unsupported(
        "context: a draft model sees the prompt in order and has no keys that move; use ngram, or no drafter");
  if (runner_->kv().by_layer()) return Error::unsupported(kBlocksByLayer);
  if (runner_->kv().gives_back() && runner_->kv().evicts())
    return Error::unsupported(
        "context: with an evictor, layers with a window have blocks of their own; start the engine without one");
  if (runner_->kv().gives_back())
    return Error::unsupported(
        "context: layers with a window keep only the newest keys; keep all of them (--keep-window-keys), or choose the "
        "context for the whole engine");
  MILLRACE_TRY_VOID(check_movable(model_->parts().model->spec(), "context"));
  return layout.encodes() ? check_encoded_context() : Result<void>();
}

// With a codec.
Result<void> CpuDocuments::check_encoded_context() const {
  const std::string& codec = runner_->kv().layout().codec_name();
  if (pattern_layer_sets(runner_->limits().switches.attention.pattern) > 0)
    return Error::unsupported(fmt::format("context: KV format {}: not with attention {}, which stores rows beside it",
                                          codec, runner_->limits().switches.attention.pattern->text()));
  return rows_ ? Result<void>() : context_needs_rows(codec);
}

Result<void> CpuDocuments::check_encoded(const DocumentTokens& documents) const {
  if (!documents_)
    return Error::user(
        "context cepe: the engine has no encoder; start it with one, context=cepe:model=FOLDER, or choose another "
        "context");
  if (draft_ || features_ || self_)
    return Error::unsupported(
        "context cepe: a drafter with a model does not see the documents; use ngram, or no drafter");
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
  return rows_ ? rows_->kept().check(plan, runner_->kv().layout().codec_name()) : Result<void>();
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
