#include "run/executors/cpu_chooser.h"

#include <algorithm>

#include "sampling/logprobs.h"
#include "sampling/setup.h"

namespace millrace {

CpuChooser::CpuChooser(const Engine& engine, int64_t outputs)
    : model_(engine.model),
      runner_(engine.runner),
      rows_runner_(engine.rows_runner),
      adapters_(engine.adapters),
      grammars_(engine.grammars),
      choice_(engine.model.parts().tokenizer.get(), engine.model.parts().model->spec().vocab, engine.runner.threads(),
              outputs) {}

Result<CompiledConstraint> CpuChooser::compile(const Constraint& constraint, const CompileOrder& order) const {
  if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
  if (!grammars_)
    return Error::unsupported("constraint: the model has no tokenizer, so there is no text to hold to it");
  MILLRACE_TRY(const CompiledGrammar compiled, grammars_->get(constraint, order));
  return CompiledConstraint{compiled.grammar->notes.weakened, compiled.grammar};
}

std::optional<Result<CompiledConstraint>> CpuChooser::compiled(const Constraint& constraint) const {
  if (constraint.kind == Constraint::Kind::none) return CompiledConstraint();
  auto found = grammars_ ? grammars_->find(constraint) : std::nullopt;
  if (!found) return std::nullopt;
  if (!found->ok()) return Result<CompiledConstraint>(found->error());
  return Result<CompiledConstraint>(CompiledConstraint{(*found)->grammar->notes.weakened, (*found)->grammar});
}

Result<void> CpuChooser::begin(StreamRef stream) const {
  const Request& request = stream.sequence.request;
  const Tokenizer* tokenizer = model_.parts().tokenizer.get();
  SamplerSetup setup;
  if (tokenizer) {
    setup = make_sampler_setup(request, *tokenizer);
    const DetokenizerOptions shown{
        .skip_special = request.skip_special,
        .markers = request.show_markers || request.constraint.kind != Constraint::Kind::none};
    stream.own.detokenizer = std::make_unique<Detokenizer>(*tokenizer, shown);
  } else {
    setup.options = request.sampling;
  }
  setup.vocab_size = static_cast<int32_t>(model_.parts().model->spec().vocab);
  if (request.constraint.kind != Constraint::Kind::none) {
    MILLRACE_TRY(setup.grammar, grammars_->get(request.constraint));
  }
  MILLRACE_TRY(stream.own.sampler, SamplerChain::create(setup));
  for (TokenId token : request.prompt) stream.own.sampler->accept(token);
  MILLRACE_TRY(stream.own.stop, AnswerStops::create(request));
  return request.adapters.empty() ? Result<void>() : begin_adapters(stream);
}

Result<void> CpuChooser::begin_adapters(StreamRef stream) const {
  MILLRACE_TRY(stream.own.adapters, adapters_.find(stream.sequence.request.adapters));
  const ArchSpec& spec = model_.parts().model->spec();
  for (ModelRunner* runner : {&runner_, rows_runner_}) {
    for (const LoraUse& use : stream.own.adapters) {
      const int64_t bytes = runner ? runner->adapters().wanted(spec, use.adapter->rank()) : 0;
      if (bytes == 0) continue;
      MILLRACE_TRY(MemoryHold hold, MemoryHold::take(model_.parts().accounts, "adapters", bytes,
                                                     "unload an adapter, or raise the budget"));
      MILLRACE_TRY_VOID(runner->adapters().reserve(spec, use.adapter->rank()));
      memory_.push_back(std::move(hold));
    }
  }
  return {};
}

void CpuChooser::choose_ahead(std::span<const ChoiceWork> work, const Acceptance& acceptance) {
  choice_.choose_ahead(work, acceptance, runner_.logits());
}

Result<bool> CpuChooser::choose(StreamRef stream, int64_t row, TokenEvent& event) {
  return choice_.choose(stream, row, runner_.logits(), event);
}

void CpuChooser::likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) {
  const auto vocab = static_cast<size_t>(model_.parts().model->spec().vocab);
  out = compute_logprobs({runner_.logits(row), vocab}, -1, count).top;
}

TokenId CpuChooser::best_token(int64_t row) {
  return std::max<TokenId>(0, argmax({runner_.logits(row), static_cast<size_t>(model_.parts().model->spec().vocab)}));
}

void CpuChooser::best_tokens(int64_t row, std::span<TokenId> out) {
  largest_tokens({runner_.logits(row), static_cast<size_t>(model_.parts().model->spec().vocab)}, out);
}

std::vector<TokenId> CpuChooser::end_tokens() const {
  const Tokenizer* tokenizer = model_.parts().tokenizer.get();
  return tokenizer ? tokenizer->spec().eog : std::vector<TokenId>();
}

void CpuChooser::write(StreamRef stream, TokenEvent& event) {
  const Tokenizer* tokenizer = model_.parts().tokenizer.get();
  const bool silent = tokenizer && tokenizer->is_eog(event.token) && !stream.sequence.request.ignore_eos;
  if (stream.own.detokenizer && !silent) event.text = stream.own.detokenizer->push(event.token);
}

void CpuChooser::flush(StreamRef stream, TokenEvent& event) {
  if (!stream.own.detokenizer) return;
  event.text += stream.own.stop.push(stream.own.detokenizer->flush());
  event.text += stream.own.stop.flush();
}

}  // namespace millrace
