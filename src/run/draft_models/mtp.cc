// The layer for multi-token prediction in the engine's model's own files, for the drafter mtp.
#include "models/draft_heads/mtp_layer.h"
#include "run/draft_models/loader.h"
#include "run/layer_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_mtp(const OptionValues&, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  auto layer = MtpLayer::load(parts.files, *parts.model, parts.kernels, *host.threads, host.context, parts.accounts);
  if (!layer.ok()) return draft_model_error("mtp", layer.error());
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<LayerRunner>(std::move(*layer)));
}

}  // namespace

extern const DraftModelLoader kMtpDraftModel = {
    .name = "mtp", .load = load_mtp, .hidden_states = true, .hidden_rows = true};

}  // namespace millrace
