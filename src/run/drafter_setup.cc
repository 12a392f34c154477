#include "run/drafter_setup.h"

#include <span>
#include <string>

namespace millrace {

Result<void> DrafterSetup::check() const {
  if (!plan_.drafter) return {};
  const Tokenizer* tokens = model_.parts().tokenizer.get();
  return plan_.drafter->check(
      model_.parts().model->spec().vocab,
      tokens ? std::span<const std::string>(tokens->spec().tokens) : std::span<const std::string>());
}

Result<void> DrafterSetup::load(KvLayout& layout, int64_t context) {
  own_layers_ = std::ssize(layout.layers);
  if (!plan_.drafter || !plan_.drafter->model) return {};
  MILLRACE_TRY(loaded_, load_draft_model(plan_.drafter->model->spec, {model_, threads_, context}));
  const auto layers = loaded_->layers();
  layout.layers.insert(layout.layers.end(), layers.begin(), layers.end());
  return {};
}

std::vector<KvLayer> DrafterSetup::whole_model_layers() const {
  const DraftModelLoader* loader = draft_model_loader(plan_.drafter.get());
  return loader && !loader->hidden_states ? loaded_->layers() : std::vector<KvLayer>();
}

int64_t DrafterSetup::memory(const ForwardLimits& limits, const KvLayout& layout) {
  if (!loaded_) return 0;
  sizes_ = {.tokens = limits.tokens,
            .context = limits.context,
            .streams = plan_.options.max_streams,
            .rows = plan_.drafter->model->rows,
            .longest = plan_.longest_draft(),
            .vocab = model_.parts().model->spec().vocab,
            .odds = plan_.acceptance->needs_odds() ? limits.outputs : 0};
  return loaded_->memory(sizes_, threads_->threads(), layout);
}

Result<std::unique_ptr<LoadedDraftModel>> DrafterSetup::start(ModelRunner& runner) {
  if (loaded_) MILLRACE_TRY_VOID(loaded_->start(runner, own_layers_, sizes_));
  return std::move(loaded_);
}

}  // namespace millrace
