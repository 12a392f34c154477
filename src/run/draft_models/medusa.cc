// Medusa's heads, for the drafter medusa.
#include <fmt/format.h>

#include "run/draft_models/loader.h"
#include "run/medusa_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_medusa(const OptionValues& options, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  const std::string& path = options.text("model");
  auto heads = MedusaHeads::load(path, parts.model->spec(), parts.kernels, *host.threads, parts.accounts);
  if (!heads.ok()) return draft_model_error("medusa", heads.error());
  if ((*heads)->heads() < options.integer("k"))
    return Error::user(
        fmt::format("drafter medusa: k: {} heads wanted, {} has {}", options.integer("k"), path, (*heads)->heads()));
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<MedusaRunner>(std::move(*heads)));
}

}  // namespace

extern const DraftModelLoader kMedusaDraftModel = {
    .name = "medusa", .load = load_medusa, .hidden_states = true, .hidden_rows = true};

}  // namespace millrace
