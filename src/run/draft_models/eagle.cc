// EAGLE's layer, for the drafter eagle.
#include "models/draft_heads/eagle_layer.h"
#include "run/draft_models/loader.h"
#include "run/layer_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_eagle(const OptionValues& options, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  auto layer =
      EagleLayer::load(options.text("model"), *parts.model, parts.kernels, *host.threads, host.context, parts.accounts);
  if (!layer.ok()) return draft_model_error("eagle", layer.error());
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<LayerRunner>(std::move(*layer)));
}

}  // namespace

extern const DraftModelLoader kEagleDraftModel = {
    .name = "eagle", .load = load_eagle, .hidden_states = true, .hidden_rows = true};

}  // namespace millrace
