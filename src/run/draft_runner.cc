#include "run/draft_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/model_files.h"
#include "models/mixers/mixer.h"
#include "run/embedded_model.h"
#include "run/live_stream.h"

namespace millrace {
namespace {

// Drafted tokens are the engine's model's, so both number the same tokens in the same way.
Result<void> check_vocabulary(const LanguageModel& target, const LanguageModel& draft, const std::string& path) {
  const int64_t own = target.info().vocab, other = draft.info().vocab;
  if (own != other)
    return Error::user(fmt::format(
        "drafter draft: {} has a vocabulary of {} tokens, the model has {}; choose a draft model of the same family",
        path, other, own));
  if (!target.parts().tokenizer || !draft.parts().tokenizer) return {};
  const auto& tokens = target.parts().tokenizer->spec().tokens;
  const auto& drafted = draft.parts().tokenizer->spec().tokens;
  const auto [a, b] = std::ranges::mismatch(tokens, drafted);
  if (a == tokens.end() && b == drafted.end()) return {};
  const auto shown = [](const auto& at, const auto& all) { return at == all.end() ? "missing" : "'" + *at + "'"; };
  return Error::user(
      fmt::format("drafter draft: token {} of {} is {}, of the model {}; choose a draft model with the same vocabulary",
                  a - tokens.begin(), path, shown(b, drafted), shown(a, tokens)));
}

Result<void> check_layers(const ArchSpec& spec, const std::string& path) {
  for (const LayerSpec& layer : spec.layers)
    if (layer.mixer->state_kind == StateKind::recurrent)
      return Error::unsupported(
          fmt::format("drafter draft: {} has recurrent layers, which cannot take back a rejected token; choose a draft "
                      "model of attention layers",
                      path));
  return {};
}

// The draft model that was not named: the one in the binary that has the same vocabulary.
Result<std::string> own_draft(const LanguageModel& target) {
  const Tokenizer* own = target.parts().tokenizer.get();
  for (const EmbeddedModel& model : embedded_models()) {
    if (!own || !model.short_name.ends_with("-draft") || target.parts().files->path == model.name) continue;
    MILLRACE_TRY(const ModelFiles files, open_gguf_image(model.image, std::string(model.name)));
    if (files.tokenizer && files.tokenizer->tokens == own->spec().tokens) return std::string(model.short_name);
  }
  return Error::user(
      "drafter draft: no draft model in the binary has this model's vocabulary; name a smaller model that does, "
      "draft:model=PATH");
}

// Every stream may lack one token more than the step runs.
ForwardLimits draft_limits(const DraftRunner::Sizes& sizes) {
  return {sizes.tokens + sizes.streams, sizes.streams, sizes.context};
}

// Steps that the drafted tokens themselves must move on, so that a copy draws them.
bool follows_tokens(const Request& request) {
  return request.constraint.kind != Constraint::Kind::none || request.thinking.tokens >= 0;
}

// An error makes a draft that is rejected: the engine's own choice reports it.
TokenId token_or_none(const Result<TokenId>& drawn) { return drawn.ok() ? *drawn : 0; }

}  // namespace

Result<std::shared_ptr<const LanguageModel>> DraftRunner::load(const LanguageModel& target, const std::string& given,
                                                               int threads, int64_t context) {
  std::string path = given;
  if (path.empty()) {
    MILLRACE_TRY(path, own_draft(target));
  }
  LoadOptions options;
  options.threads = threads;
  options.context = context;
  options.memory_name = "draft model";
  auto loaded = target.parts().seconds->load(target, path, options);
  if (!loaded.ok()) return Error{loaded.error().kind, fmt::format("drafter draft: model: {}", loaded.error().message)};
  MILLRACE_TRY_VOID(check_vocabulary(target, **loaded, path));
  MILLRACE_TRY_VOID(check_layers((*loaded)->parts().model->spec(), path));
  return std::move(*loaded);
}

int64_t DraftRunner::memory(const LanguageModel& draft, const Sizes& sizes, int threads, const KvLayout& layout) {
  const ArchSpec& spec = draft.parts().model->spec();
  const ForwardBytes bytes = ForwardContext::plan(spec, draft_limits(sizes), threads, layout);
  return bytes.activations + bytes.logits + 32 * spec.vocab * (sizes.streams > 1 ? threads : 1);
}

Result<std::unique_ptr<DraftRunner>> DraftRunner::create(std::shared_ptr<const LanguageModel> draft, KvPool& pool,
                                                         int64_t first_layer, std::shared_ptr<ThreadPool> threads,
                                                         const Sizes& sizes) {
  auto made = std::unique_ptr<DraftRunner>(new DraftRunner());
  const auto& parts = draft->parts();
  MILLRACE_TRY(made->runner_, ModelRunner::create(*parts.model, parts.kernels,
                                                  {.threads = std::move(threads),
                                                   .layout = {},
                                                   .pool = &pool,
                                                   .first_layer = first_layer,
                                                   .limits = draft_limits(sizes),
                                                   .streams = sizes.streams}));
  made->scratch_.resize(static_cast<size_t>(sizes.streams > 1 ? made->runner_->threads().threads() : 1));
  for (SamplingRow& row : made->scratch_) row.reserve(parts.model->spec().vocab);
  made->drawing_.reserve(static_cast<size_t>(sizes.streams));
  made->model_ = std::move(draft);
  return made;
}

void DraftRunner::run(std::span<DraftRun> runs) {
  runner_->start();
  drawing_.clear();
  for (DraftRun& run : runs) {
    const Sequence& s = *run.stream;
    runner_->begin(s.kv.blocks, run.first - s.kv.left_out);
    const int64_t end = run.first + run.count;
    for (int64_t i = run.first; i < end; ++i) runner_->add(s.token_at(i), i, run.draws && i + 1 == end);
    if (run.draws) drawing_.push_back(&run);
  }
  const ThreadPool::Turn turn(runner_->threads());
  runner_->forward(turn);
  const auto draw_row = [&](int64_t row, int worker) {
    DraftRun& run = *drawing_[static_cast<size_t>(row)];
    run.drawn = draw(run, row, scratch_[static_cast<size_t>(worker)]);
  };
  const int64_t rows = std::ssize(drawing_);
  if (rows == 0) return;
  if (rows == 1) return draw_row(0, 0);
  runner_->threads().parallel_for(rows, draw_row);
}

// The token that the stream's sampling would choose from these logits, at the position after the run. The chain itself
// is applied without its tokens being accepted, so penalties do not count the draft; where tokens must be, a copy is
// used.
TokenId DraftRunner::draw(const DraftRun& run, int64_t row, SamplingRow& scratch) {
  const int64_t vocab = model_->parts().model->spec().vocab;
  const std::span<float> logits(runner_->logits(row), static_cast<size_t>(vocab));
  const Sequence& s = *run.stream;
  const int64_t end = run.first + run.count;
  const int64_t position = end - s.prompt_tokens;
  SamplerChain& chain = *run.owner->sampler;
  try {
    if (!follows_tokens(s.request)) return token_or_none(chain.sample(logits, position, scratch));
    SamplerChain copy = chain.clone();
    for (int64_t i = s.size(); i < end; ++i) copy.accept(s.token_at(i));
    return token_or_none(copy.sample(logits, position, scratch));
  } catch (...) {  // no exception may leave a worker; the engine's own choice reports it
    return 0;
  }
}

}  // namespace millrace
