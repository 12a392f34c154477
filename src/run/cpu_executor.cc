#include "run/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/background_packer.h"
#include "run/cpu_setup.h"
#include "run/language_model.h"
#include "run/prompt_embeddings.h"
#include "run/stored_pattern.h"
#include "sampling/schema.h"

namespace millrace {
Result<std::unique_ptr<Executor>> CpuExecutor::create(std::shared_ptr<const LanguageModel> model,
                                                      const EngineOptions& given) {
  EngineOptions options = given;
  options.kernels = with_stored_patterns(*model->parts().files, std::move(options.kernels));
  auto executor = std::unique_ptr<CpuExecutor>(new CpuExecutor());
  executor->model_ = std::move(model);
  executor->adapters_ = std::make_unique<AdapterRegistry>(executor->model_);
  for (const std::string& named : options.adapters) {  // before the KV cache takes the rest of the memory budget
    const auto [name, path] = named_adapter(named);
    MILLRACE_TRY_VOID(executor->adapters_->load(name, path));
  }
  CpuSetup setup(*executor, options);
  MILLRACE_TRY_VOID(setup.run());
  return std::unique_ptr<Executor>(std::move(executor));
}

void CpuExecutor::start(const ForwardLimits& limits, int64_t drafts, int64_t streams) {
  kv_.emplace(*model_, *runner_, draft_.get(), features_.get());
  chooser_.emplace(CpuChooser::Engine{.model = *model_,
                                      .runner = *runner_,
                                      .rows_runner = documents_->rows_runner(),
                                      .adapters = *adapters_,
                                      .grammars = grammars_.get()},
                   limits.outputs);
  pass_.emplace(*runner_, documents_->encoded(), features_.get(), self_ ? self_->first_rows() : nullptr, drafts,
                streams);
  DraftModel* drafter = draft_.get();
  if (self_) drafter = self_.get();
  if (features_) drafter = features_.get();
  set_parts({.home = &*kv_,
             .chooser = &*chooser_,
             .draft_model = drafter,
             .documents = documents_.get(),
             .adapters = adapters_.get(),
             .accounts = model_->parts().accounts.get()});
}

Result<void> CpuExecutor::failure() const {
  const BackgroundPacker* packing = model_->parts().model->packing();
  return packing ? packing->failure() : Result<void>();
}

Result<void> CpuExecutor::check(const Request& request) const {
  MILLRACE_TRY_VOID(failure());
  const int64_t vocab = model_->parts().model->spec().vocab;
  for (TokenId token : request.prompt)
    if (token < 0 || token >= vocab)
      return Error::user(fmt::format("prompt: token {} is outside the vocabulary of {}", token, vocab));
  MILLRACE_TRY_VOID(check_embeddings(request, model_->parts().model->spec().width));
  MILLRACE_TRY_VOID(validate(request.sampling, vocab));
  if (auto stop = AnswerStops::create(request); !stop.ok()) return stop.error();
  if (!request.adapters.empty()) MILLRACE_TRY_VOID(adapters_->find(request.adapters));
  return {};
}

void CpuExecutor::forward(const StepInput& input, StepOutput& output) {
  chooser_->forget();
  pass_->run(input, output);
}

}  // namespace millrace
