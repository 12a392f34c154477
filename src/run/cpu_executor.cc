#include "run/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/pattern_layers.h"
#include "models/background_packer.h"
#include "run/cpu_setup.h"
#include "run/evictor_check.h"
#include "run/kv_places.h"
#include "run/language_model.h"
#include "run/prompt_embeddings.h"
#include "run/stored_pattern.h"
#include "sampling/schema.h"

namespace millrace {
namespace {

// Beams are ranked by the model's own distribution, so options that change it are refused.
Result<void> check_beams(const Request& request) {
  if (request.beams == 1) return {};
  const SamplingOptions& s = request.sampling;
  if (request.constraint.kind != Constraint::Kind::none)
    return Error::unsupported("beams: constraints are not supported with beam search");
  if (request.thinking.tokens >= 0)
    return Error::unsupported("beams: a thinking budget is not supported with beam search");
  if (!request.stop.empty()) return Error::unsupported("beams: stop strings are not supported with beam search");
  const bool penalties =
      s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0 || s.dry_multiplier != 0;
  if (penalties || !request.bad_words.empty() || !s.logit_bias.empty() || !s.banned_tokens.empty() ||
      !s.allowed_tokens.empty()) {
    return Error::unsupported("beams: penalties, biases, banned and allowed tokens are not supported with beam search");
  }
  return {};
}

}  // namespace

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
  pass_.emplace(*runner_, documents_->encoded(), features_.get(), drafts, streams);
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
  if (!request.stop.empty() && !model_->parts().tokenizer)
    return Error::unsupported("stop: the model has no tokenizer, so there is no text to match");
  if (auto stop = AnswerStops::create(request); !stop.ok()) return stop.error();
  MILLRACE_TRY_VOID(check_beams(request));
  if (request.beams > 1 && runner_->kv().by_layer()) return Error::unsupported(kBlocksByLayer);
  if (!request.adapters.empty()) MILLRACE_TRY_VOID(adapters_->find(request.adapters));
  if (request.constraint.kind != Constraint::Kind::none && !grammars_)
    return Error::unsupported("constraint: the model has no tokenizer, so there is no text to hold to it");
  return {};
}

Result<void> CpuExecutor::check_evictor(const EvictionRule& rule) const {
  MILLRACE_TRY_VOID(check_evictor_pattern(rule, runner_->limits().switches.attention.pattern, runner_->kv().layout()));
  if (features_)
    return Error::unsupported(
        "evictor: drafters that read hidden states need those of all tokens; use ngram, or a draft model");
  for (const ArchSpec* spec : specs()) MILLRACE_TRY_VOID(check_token_evictor(rule, *spec, limits_.context));
  if (draft_) MILLRACE_TRY_VOID(check_evictor_draft(draft_->model().parts().model->spec(), limits_.context));
  if (rule.moves_keys() && (draft_ || self_))
    return Error::unsupported(
        "evictor: positions=cache: drafts of a model are of positions in the text; use ngram, or positions=text");
  if (rule.evictor->gated() && self_)
    return Error::unsupported(
        "evictor: gates choose in whole passes, and drafts of this model skip layers; use ngram, or no drafter");
  MILLRACE_TRY_VOID(check_evictor_pool(rule, runner_->kv(), limits_.context));
  return check_moved_positions(rule, model_->parts().model->spec(), runner_->kv().layout());
}

std::vector<const ArchSpec*> CpuExecutor::specs() const { return specs_with_draft(*model_, draft_.get()); }

void CpuExecutor::forward(const StepInput& input, StepOutput& output) {
  chooser_->forget();
  pass_->run(input, output);
}

}  // namespace millrace
