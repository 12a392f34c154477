#include "run/executors/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/workers/workers.h"
#include "models/background_packer.h"
#include "run/executors/cpu_setup.h"
#include "run/language_model.h"
#include "run/prompt_embeddings.h"
#include "sampling/schema.h"

namespace millrace {
Result<std::unique_ptr<Executor>> CpuExecutor::create(std::shared_ptr<const LanguageModel> model,
                                                      const EngineOptions& options) {
  MILLRACE_TRY(const EnginePlan plan, EnginePlan::create(options, *model));
  return create(std::move(model), plan);
}

Result<std::unique_ptr<Executor>> CpuExecutor::create(std::shared_ptr<const LanguageModel> model,
                                                      const EnginePlan& plan) {
  auto executor = std::unique_ptr<CpuExecutor>(new CpuExecutor());
  executor->model_ = std::move(model);
  executor->adapters_ = std::make_unique<AdapterRegistry>(executor->model_);
  for (const std::string& named : plan.options.adapters) {  // before the KV cache takes the rest of the memory budget
    const auto [name, path] = named_adapter(named);
    MILLRACE_TRY_VOID(executor->adapters_->load(name, path));
  }
  CpuSetup setup(*executor, plan);
  MILLRACE_TRY_VOID(setup.run());
  return std::unique_ptr<Executor>(std::move(executor));
}

void CpuExecutor::start(const ForwardLimits& limits, int64_t drafts, int64_t streams) {
  kv_.emplace(*model_, *runner_, draft_.get(), streamed_.get());
  chooser_.emplace(CpuChooser::Engine{.model = *model_,
                                      .runner = *runner_,
                                      .rows_runner = documents_->rows_runner(),
                                      .adapters = *adapters_,
                                      .grammars = grammars_.get()},
                   limits.outputs);
  pass_.emplace(*runner_, documents_->encoded(), draft_.get(), drafts, streams);
  set_parts({.home = &*kv_,
             .chooser = &*chooser_,
             .draft_model = draft_.get(),
             .documents = documents_.get(),
             .adapters = adapters_.get(),
             .accounts = model_->parts().accounts.get(),
             .weights = model_->parts().model->source(),
             .workers = runner_->workers()});
}

Result<void> CpuExecutor::packing_failure() const {
  const BackgroundPacker* packing = model_->parts().model->packing();
  return packing ? packing->failure() : Result<void>();
}

Result<void> CpuExecutor::failure() const {
  MILLRACE_TRY_VOID(packing_failure());
  return read_;
}

bool CpuExecutor::take_loss() { return runner_->workers() && runner_->workers()->take_loss(); }

Result<void> CpuExecutor::check(const Request& request) const {
  MILLRACE_TRY_VOID(packing_failure());
  const ArchSpec& spec = model_->parts().model->spec();
  const bool reads_hidden = request.reader && !request.reader->logits() && request.max_tokens == 0;
  if (spec.encoder && !reads_hidden)
    return Error::unsupported(
        fmt::format("this model is an encoder ({}): it embeds and ranks texts, and generates none; use /v1/embeddings, "
                    "/v1/rerank or a model with a decoder",
                    spec.arch));
  const int64_t vocab = spec.vocab;
  for (TokenId token : request.prompt)
    if (token < 0 || token >= vocab)
      return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, vocab));
  MILLRACE_TRY_VOID(check_embeddings(request, spec.width));
  MILLRACE_TRY_VOID(validate(request.sampling, vocab));
  if (auto stop = AnswerStops::create(request); !stop.ok()) return stop.error();
  if (!request.adapters.empty()) MILLRACE_TRY_VOID(adapters_->find(request.adapters));
  return {};
}

void CpuExecutor::forward(const StepInput& input, StepOutput& output) {
  chooser_->forget();
  pass_->run(input, output);
  if (streamed_) streamed_->end_pass(input, output);
  read_ = runner_->take_failure();
}

}  // namespace millrace
