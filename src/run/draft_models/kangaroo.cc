// The engine's model's first layers and an adapter behind them, for the drafter kangaroo.
#include "run/draft_models/loader.h"
#include "run/exit_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_kangaroo(const OptionValues& options, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  auto adapter = ExitAdapter::load(options.text("model"), options.integer("exit"), *parts.model, parts.kernels,
                                   *host.threads, host.context, parts.accounts);
  if (!adapter.ok()) return draft_model_error("kangaroo", adapter.error());
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<ExitRunner>(std::move(*adapter)));
}

}  // namespace

extern const DraftModelLoader kKangarooDraftModel = {.name = "kangaroo", .load = load_kangaroo, .hidden_states = true};

}  // namespace millrace
