#include "run/draft_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "loader/model_files.h"
#include "models/mixers/mixer.h"
#include "run/embedded_model.h"
#include "run/live_stream.h"
#include "sampling/logprobs.h"

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

// Every stream may lack some tokens more than the step runs: those that were kept without the model having run them.
ForwardLimits draft_limits(const DraftRunner::Sizes& sizes) {
  const int64_t rows = sizes.streams * sizes.rows;
  return {sizes.tokens + rows, rows, sizes.context};
}

// The likeliest tokens and their shares, and the drawn one's.
void weigh(std::span<const float> logits, DraftPick& pick) {
  pick.likely = {};
  pick.share = {};
  std::array<float, std::tuple_size_v<decltype(pick.likely)>> best;
  best.fill(-INFINITY);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > best.back())) continue;
    size_t at = best.size() - 1;
    for (; at > 0 && logits[i] > best[at - 1]; --at) best[at] = best[at - 1], pick.likely[at] = pick.likely[at - 1];
    best[at] = logits[i];
    pick.likely[at] = static_cast<TokenId>(i);
  }
  const double sum = log_sum_exp(logits);
  for (size_t i = 0; i < best.size(); ++i) pick.share[i] = static_cast<float>(std::exp(best[i] - sum));
}

// Steps that the drafted tokens themselves must move on, so that a copy draws them.
bool follows_tokens(const Request& request) {
  return request.constraint.kind != Constraint::Kind::none || request.thinking.tokens >= 0;
}

// An error makes a draft that is rejected: the engine's own choice reports it.
TokenId token_or_none(const Result<TokenId>& drawn) { return drawn.ok() ? *drawn : 0; }

float likeliest_share(std::span<const float> logits) {
  return static_cast<float>(std::exp(std::ranges::max(logits) - log_sum_exp(logits)));
}

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
    const int64_t rows = run.draws ? std::max<int64_t>(1, std::ssize(run.picks)) : 0;
    for (int64_t i = run.first; i < end; ++i) runner_->add(s.token_at(i), i, i >= end - rows);
    if (rows > 0) drawing_.push_back({&run, runner_->outputs() - rows});
  }
  const ThreadPool::Turn turn(runner_->threads());
  runner_->forward(turn);
  const auto draw_stream = [&](int64_t i, int worker) {
    draw_all(drawing_[static_cast<size_t>(i)], scratch_[static_cast<size_t>(worker)]);
  };
  if (drawing_.empty()) return;
  if (drawing_.size() == 1) return draw_stream(0, 0);
  runner_->threads().parallel_for(std::ssize(drawing_), draw_stream);
}

// A stream's rows one after the other: they share its sampler.
void DraftRunner::draw_all(const Drawing& drawing, SamplingRow& scratch) {
  const auto vocab = static_cast<size_t>(model_->parts().model->spec().vocab);
  DraftRun& run = *drawing.run;
  if (run.picks.empty()) return draw(run, {runner_->logits(drawing.row), vocab}, scratch);
  DraftRun part = run;
  part.weighs = false;
  part.count -= std::ssize(run.picks);
  for (size_t i = 0; i < run.picks.size(); ++i) {
    DraftPick& pick = run.picks[i];
    const std::span<float> logits(runner_->logits(drawing.row + static_cast<int64_t>(i)), vocab);
    ++part.count;
    if (run.weighs) weigh(logits, pick);
    draw(part, logits, scratch);
    pick.drawn = part.drawn;
    if (!run.weighs) continue;
    const auto found = std::ranges::find(pick.likely, pick.drawn);  // another one has at most the last one's share
    pick.drawn_share =
        pick.share[std::min<size_t>(static_cast<size_t>(found - pick.likely.begin()), pick.share.size() - 1)];
  }
  run.drawn = part.drawn;
}

// The token that the stream's sampling would choose from these logits, at the position after the run. The chain itself
// is applied without its tokens being accepted, so penalties do not count the draft; where tokens must be, a copy is
// used.
void DraftRunner::draw(DraftRun& run, std::span<float> logits, SamplingRow& scratch) {
  const Sequence& s = *run.stream;
  if (run.weighs) run.confidence = likeliest_share(logits);
  const int64_t end = run.first + run.count;
  const int64_t position = end - s.prompt_tokens;
  SamplerChain& chain = *run.owner->sampler;
  try {
    if (!follows_tokens(s.request)) {
      run.drawn = token_or_none(chain.sample(logits, position, scratch));
      return;
    }
    SamplerChain copy = chain.clone();
    for (int64_t i = s.size(); i < end; ++i) copy.accept(s.token_at(i));
    run.drawn = token_or_none(copy.sample(logits, position, scratch));
  } catch (...) {  // no exception may leave a worker; the engine's own choice reports it
    run.drawn = 0;
  }
}

}  // namespace millrace
