#include "run/feature_runner.h"

#include <fmt/format.h>

#include "models/draft_heads/eagle_layer.h"
#include "models/draft_heads/exit_adapter.h"
#include "models/draft_heads/longspec_layer.h"
#include "models/draft_heads/mtp_layer.h"
#include "run/exit_runner.h"
#include "run/layer_runner.h"
#include "run/lookahead_runner.h"
#include "run/medusa_runner.h"

namespace millrace {

Result<std::unique_ptr<FeatureRunner>> FeatureRunner::load(const FeatureChoice& choice, const std::string& path,
                                                           const LanguageModel& target, ThreadPool& pool,
                                                           int64_t context) {
  const LanguageModel::Parts& parts = target.parts();
  const auto failed = [](const char* name, const Error& error) {
    return Error{error.kind, fmt::format("drafter {}: {}", name, error.message)};
  };
  if (choice.kind == FeatureChoice::Kind::medusa) {
    auto heads = MedusaHeads::load(path, parts.model->spec(), parts.kernels, pool, parts.accounts);
    if (!heads.ok()) return failed("medusa", heads.error());
    if ((*heads)->heads() < choice.heads)
      return Error::user(
          fmt::format("drafter medusa: k: {} heads wanted, {} has {}", choice.heads, path, (*heads)->heads()));
    return std::unique_ptr<FeatureRunner>(std::make_unique<MedusaRunner>(std::move(*heads)));
  }
  if (choice.kind == FeatureChoice::Kind::kangaroo) {
    auto adapter = ExitAdapter::load(path, choice.exit, *parts.model, parts.kernels, pool, context, parts.accounts);
    if (!adapter.ok()) return failed("kangaroo", adapter.error());
    return std::unique_ptr<FeatureRunner>(std::make_unique<ExitRunner>(std::move(*adapter)));
  }
  if (choice.kind == FeatureChoice::Kind::pass) {
    auto tokens = LookaheadTokens::load(path, parts.model->spec(), parts.accounts);
    if (!tokens.ok()) return failed("pass", tokens.error());
    if (tokens->count() < choice.heads)
      return Error::user(
          fmt::format("drafter pass: k: {} look-ahead tokens wanted, {} has {}", choice.heads, path, tokens->count()));
    return std::unique_ptr<FeatureRunner>(std::make_unique<LookaheadRunner>(std::move(*tokens)));
  }
  std::unique_ptr<DraftLayer> layer;
  if (choice.kind == FeatureChoice::Kind::eagle) {
    auto loaded = EagleLayer::load(path, *parts.model, parts.kernels, pool, context, parts.accounts);
    if (!loaded.ok()) return failed("eagle", loaded.error());
    layer = std::move(*loaded);
  } else if (choice.kind == FeatureChoice::Kind::longspec) {
    auto loaded = LongspecLayer::load(path, *parts.model, parts.kernels, pool, context, parts.accounts);
    if (!loaded.ok()) return failed("longspec", loaded.error());
    layer = std::move(*loaded);
  } else {
    auto loaded = MtpLayer::load(parts.files, *parts.model, parts.kernels, pool, context, parts.accounts);
    if (!loaded.ok()) return failed("mtp", loaded.error());
    layer = std::move(*loaded);
  }
  return std::unique_ptr<FeatureRunner>(std::make_unique<LayerRunner>(std::move(layer)));
}

}  // namespace millrace
