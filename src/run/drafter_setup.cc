#include "run/drafter_setup.h"

#include <span>
#include <string>

#include "run/skip_choice.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {

Result<void> DrafterSetup::choose() {
  MILLRACE_TRY(longest_, longest_draft(options_.drafter));
  MILLRACE_TRY(const auto skips, drafter_skips(options_.drafter));
  if (skips) {
    MILLRACE_TRY(skipped_, choose_skips(*skips, model_));
    first_ = skips->first;
  }
  const Tokenizer* tokens = model_.parts().tokenizer.get();
  return check_drafter(options_.drafter, model_.parts().model->spec().vocab,
                       tokens ? std::span<const std::string>(tokens->spec().tokens) : std::span<const std::string>());
}

Result<void> DrafterSetup::load(KvLayout& layout, int64_t context) {
  own_layers_ = std::ssize(layout.layers);
  MILLRACE_TRY_VOID(load_draft_model(layout, context));
  return load_features(layout, context);
}

Result<void> DrafterSetup::load_draft_model(KvLayout& layout, int64_t context) {
  MILLRACE_TRY(const auto path, drafter_model(options_.drafter));
  MILLRACE_TRY(const auto features, drafter_features(options_.drafter));
  if (!path || features) return {};
  MILLRACE_TRY(draft_, DraftRunner::load(model_, *path, threads_->threads(), context));
  const auto layers = draft_->parts().model->kv_layers();
  layout.layers.insert(layout.layers.end(), layers.begin(), layers.end());
  return {};
}

Result<void> DrafterSetup::load_features(KvLayout& layout, int64_t context) {
  MILLRACE_TRY(const auto path, drafter_model(options_.drafter));
  MILLRACE_TRY(const auto choice, drafter_features(options_.drafter));
  if (!choice) return {};
  MILLRACE_TRY(features_, FeatureRunner::load(*choice, *path, model_, *threads_, context));
  const auto layers = features_->layers();
  layout.layers.insert(layout.layers.end(), layers.begin(), layers.end());
  return {};
}

Result<int64_t> DrafterSetup::memory(const ForwardLimits& limits, const KvLayout& layout) {
  const int64_t vocab = model_.parts().model->spec().vocab;
  const int threads = threads_->threads();
  draft_sizes_ = {
      .tokens = limits.tokens, .context = limits.context, .streams = options_.max_streams, .longest = longest_};
  MILLRACE_TRY(draft_sizes_.rows, drafter_model_rows(options_.drafter));
  MILLRACE_TRY(const bool odds, acceptance_needs_odds(options_.acceptance));
  if (odds) draft_sizes_.odds = limits.outputs;
  feature_sizes_ = {.tokens = limits.tokens,
                    .context = limits.context,
                    .streams = options_.max_streams,
                    .rows = draft_sizes_.rows,
                    .longest = longest_,
                    .vocab = vocab};
  int64_t bytes = 0;
  if (draft_) bytes += DraftRunner::memory(*draft_, draft_sizes_, threads, layout);
  if (features_) bytes += features_->memory(feature_sizes_, threads, layout);
  if (skipped_) bytes += SelfRunner::memory(vocab, options_.max_streams, threads);
  if (first_ > 0) bytes += FirstRows::memory(model_.parts().model->spec().width, limits.tokens);
  return bytes;
}

Result<EngineDrafters> DrafterSetup::start(ModelRunner& runner) {
  EngineDrafters drafters;
  if (draft_) {
    MILLRACE_TRY(drafters.draft, DraftRunner::create(draft_, runner.kv(), own_layers_, threads_, draft_sizes_));
  }
  if (features_) MILLRACE_TRY_VOID(features_->start(runner, own_layers_, feature_sizes_));
  drafters.features = std::move(features_);
  if (skipped_)
    drafters.self = std::make_unique<SelfRunner>(runner, *std::move(skipped_), options_.max_streams, first_);
  return drafters;
}

}  // namespace millrace
