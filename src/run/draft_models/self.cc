// The engine's model without some of its blocks, for the drafter self.
#include "run/draft_models/loader.h"
#include "run/self_runner.h"
#include "run/skip_choice.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_self(const OptionValues& options, const DraftModelHost& host) {
  MILLRACE_TRY(SkippedBlocks skipped,
               choose_skips({options.text("attn"), options.text("mlp"), options.text("skip")}, host.target));
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<SelfRunner>(std::move(skipped)));
}

}  // namespace

extern const DraftModelLoader kSelfDraftModel = {.name = "self", .load = load_self, .second = false, .layers = false};

}  // namespace millrace
