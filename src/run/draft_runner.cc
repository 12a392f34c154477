#include "run/draft_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "loader/model_files.h"
#include "models/mixers/mixer.h"
#include "run/draft_draw.h"
#include "run/embedded_model.h"
#include "run/executor_stream.h"
#include "run/kv_identity.h"
#include "sampling/mask_units.h"

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
ForwardLimits draft_limits(const LoadedDraftModel::Sizes& sizes) {
  const int64_t rows = sizes.streams * sizes.rows;
  return {sizes.tokens + rows, rows, sizes.context};
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

int64_t DraftRunner::memory(const Sizes& sizes, int threads, const KvLayout& layout) const {
  const ArchSpec& spec = model_->parts().model->spec();
  const ForwardBytes bytes = ForwardContext::plan(spec, draft_limits(sizes), threads, layout);
  const int64_t workers = sizes.streams > 1 || sizes.rows > 1 ? threads : 1;
  // Odds: rows of logits, and a number for each token of the vocabulary where a token is chosen.
  const int64_t odds = sizes.odds > 0 ? 4 * spec.vocab * sizes.odds + 8 * spec.vocab * threads : 0;
  return bytes.activations + bytes.logits + 32 * spec.vocab * workers + odds;
}

Result<void> DraftRunner::start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) {
  const auto& parts = model_->parts();
  MILLRACE_TRY(runner_, ModelRunner::create(*parts.model, parts.kernels,
                                            {.threads = threads_,
                                             .layout = {},
                                             .pool = &target.kv(),
                                             .first_layer = first_layer,
                                             .limits = draft_limits(sizes),
                                             .streams = sizes.streams}));
  const bool parallel = sizes.streams > 1 || sizes.rows > 1;
  scratch_.resize(static_cast<size_t>(parallel ? runner_->threads().threads() : 1));
  for (SamplingRow& row : scratch_) row.reserve(parts.model->spec().vocab);
  drawing_.reserve(static_cast<size_t>(sizes.streams));
  if (sizes.odds == 0) return {};
  longest_ = sizes.longest;
  odds_.resize(static_cast<size_t>(sizes.streams * sizes.longest));
  kept_rows_ = sizes.odds;
  MILLRACE_TRY(kept_, AlignedBuffer::allocate(4 * parts.model->spec().vocab * sizes.odds, "odds of drafts"));
  return {};
}

Result<std::string> DraftRunner::identity() {
  MILLRACE_TRY(const std::string own, kv_identity(*model_, *runner_));
  return "draft " + own;
}

void DraftRunner::run(std::span<DraftRun> runs) {
  runner_->start();
  drawing_.clear();
  for (DraftRun& run : runs) {
    const int64_t row = runner_->outputs();
    add(run);
    if (run.draws) add_draw(run, row);
  }
  const ThreadPool::Turn turn(runner_->threads());
  runner_->forward(turn);
  const int64_t draws = std::ssize(drawing_);
  if (draws == 0) return;
  if (draws == 1) return draw_run(drawing_.front(), scratch_.front());
  runner_->threads().parallel_for(draws, [&](int64_t i, int worker) {
    draw_run(drawing_[static_cast<size_t>(i)], scratch_[static_cast<size_t>(worker)]);
  });
}

void DraftRunner::add(DraftRun& run) {
  const Sequence& s = *run.stream;
  runner_->begin(s.kv.blocks, run.first - s.kv.left_out);
  const int64_t end = run.first + run.count;
  const bool level = run.branches > 1 && run.first >= s.size();
  const int64_t rows = std::max<int64_t>(1, std::ssize(run.picks));
  for (int64_t i = run.first; i < end; ++i) {
    const int64_t position = level ? s.size() + (i - s.size()) / run.branches : i;
    runner_->add(s.token_at(i), position, run.draws && (level || i >= end - rows));
  }
  if (level) runner_->see({.parents = std::span(s.draft.parents).first(static_cast<size_t>(end - s.size()))});
}

// The stream's own tokens draw the first token of every branch from one row, and so a step's first pass begins.
void DraftRunner::add_draw(DraftRun& run, int64_t row) {
  if (!run.picks.empty()) {
    drawing_.push_back({&run, 0, row});
    return;
  }
  const Sequence& s = *run.stream;
  const int64_t end = run.first + run.count, count = std::ssize(run.more) + 1;
  const bool first = end == s.size(), level = run.branches > 1 && !first;
  if (first && !odds_.empty()) {
    if (drawing_.empty()) streams_ = rows_ = 0;
    run.owner->odds = &odds_[static_cast<size_t>(streams_++ * longest_)];
  }
  Draw draw{&run, level ? run.first - s.size() + run.branches : end - s.size(), row};
  (level ? draw.rows : draw.count) = count;
  if (run.owner->odds && rows_ + draw.rows <= kept_rows_) {
    draw.kept = kept_.as<float>() + rows_ * model_->parts().model->spec().vocab;
    rows_ += draw.rows;
  }
  drawing_.push_back(draw);
}

// The chain itself is applied without its tokens being accepted, so penalties do not count the draft; where tokens must
// be, a copy is used. An error makes a draft that is rejected: the engine's own choice reports it.
void DraftRunner::draw_run(const Draw& draw, SamplingRow& scratch) {
  DraftRun& run = *draw.run;
  if (!run.picks.empty()) return draw_picks(draw, scratch);
  for (int64_t i = 0; i < draw.rows * draw.count; ++i) {
    token(draw, i) = 0;
    if (run.owner->odds) odds(draw, i) = {};
  }
  try {
    const Sequence& s = *run.stream;
    for (int64_t i = 0; i < draw.rows; ++i) {
      if (!follows_tokens(s.request)) {
        (void)draw_row(draw, i, *run.owner->sampler, scratch);
        continue;
      }
      if (run.owner->sampler->bytes() > kMaxClonedBytes) continue;
      SamplerChain copy = run.owner->sampler->clone();
      for (int64_t before = (draw.node + i) % run.branches; before < draw.node; before += run.branches)
        copy.accept(s.draft.tokens[static_cast<size_t>(before)]);
      if (!copy.prepare(mask_units().own)) continue;
      (void)draw_row(draw, i, copy, scratch);
    }
  } catch (...) {  // no exception may leave a worker
  }
}

// A stream's rows one after the other: they share its sampler.
void DraftRunner::draw_picks(const Draw& draw, SamplingRow& scratch) {
  const auto vocab = static_cast<size_t>(model_->parts().model->spec().vocab);
  DraftRun& run = *draw.run;
  for (size_t i = 0; i < run.picks.size(); ++i)
    draw_pick(run, i, {runner_->logits(draw.row + static_cast<int64_t>(i)), vocab}, scratch);
  run.drawn = run.picks.back().drawn;
}

// Without odds: the token that the stream's sampling would choose from these logits, with the random number of plain
// sampling, and for further branches the likeliest others. With odds: independent draws.
Result<void> DraftRunner::draw_row(const Draw& draw, int64_t index, SamplerChain& chain, SamplingRow& scratch) {
  const int64_t vocab = model_->parts().model->spec().vocab;
  const std::span<float> logits(runner_->logits(draw.row + index), static_cast<size_t>(vocab));
  const int64_t branches = draw.run->branches, position = draw.run->stream->generated() + draw.node / branches;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (!draw.kept) {
    MILLRACE_TRY(token(draw, index), chain.sample(logits, position, scratch));
    for (int64_t i = 1; i < draw.count; ++i) {
      logits[static_cast<size_t>(token(draw, i - 1))] = kNone;
      token(draw, i) = std::max(TokenId{0}, argmax(logits));
    }
    return {};
  }
  MILLRACE_TRY_VOID(chain.distribution(logits, position, scratch));
  for (int64_t i = 0; i < draw.count; ++i) {
    const auto branch = static_cast<uint64_t>((draw.node + index + i) % branches);
    MILLRACE_TRY(token(draw, index + i), millrace::draw(scratch, scratch.uniform(RandomStream::draft, branch)));
  }
  const Softmax softmax = scratch.softmax();
  float* kept = draw.kept + index * vocab;
  std::fill_n(kept, vocab, kNone);
  for (const Candidate& candidate : scratch.candidates()) kept[candidate.token] = candidate.logit;
  for (int64_t i = 0; i < draw.count; ++i) odds(draw, index + i) = {kept, softmax};
  return {};
}

// The `index`-th token that the run draws, and its odds.
TokenId& DraftRunner::token(const Draw& draw, int64_t index) {
  return index == 0 ? draw.run->drawn : draw.run->more[static_cast<size_t>(index - 1)];
}

DraftOdds& DraftRunner::odds(const Draw& draw, int64_t index) {
  return odds_[static_cast<size_t>(draw.run->owner->odds - odds_.data() + draw.node + index)];
}

}  // namespace millrace
