// A second model of the same vocabulary, for the drafters draft, cascade and staged.
#include "run/draft_models/loader.h"
#include "run/draft_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_whole(const OptionValues& options, const DraftModelHost& host) {
  MILLRACE_TRY(auto model,
               DraftRunner::load(host.target, options.text("model"), host.threads->threads(), host.context));
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<DraftRunner>(std::move(model), host.threads));
}

}  // namespace

extern const DraftModelLoader kWholeDraftModel = {.name = "draft", .load = load_whole};

}  // namespace millrace
