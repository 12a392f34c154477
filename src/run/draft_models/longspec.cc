// LongSpec's layer, for the drafter longspec.
#include "models/draft_heads/longspec_layer.h"
#include "run/draft_models/loader.h"
#include "run/layer_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_longspec(const OptionValues& options, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  auto layer = LongspecLayer::load(options.text("model"), *parts.model, parts.kernels, *host.threads, host.context,
                                   parts.accounts);
  if (!layer.ok()) return draft_model_error("longspec", layer.error());
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<LayerRunner>(std::move(*layer)));
}

}  // namespace

extern const DraftModelLoader kLongspecDraftModel = {.name = "longspec", .load = load_longspec, .hidden_states = true};

}  // namespace millrace
