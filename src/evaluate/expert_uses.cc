#include "evaluate/expert_uses.h"

#include <algorithm>

namespace millrace {
namespace {

// Counts the rows that each expert's first matrix reads.
class ExpertUseCounter final : public ForwardObserver {
 public:
  explicit ExpertUseCounter(const ArchSpec& spec) {
    for (const LayerSpec& layer : spec.layers)
      uses.emplace_back(static_cast<size_t>(layer.moe ? layer.experts.experts : 0), 0);
  }

  bool taps(const LinearId& id) const override { return id.kind == LinearKind::up && id.layer >= 0 && id.expert >= 0; }
  void input(const LinearInput& in) override {
    uses[static_cast<size_t>(in.id.layer)][static_cast<size_t>(in.id.expert)] += in.tokens;
  }

  std::vector<std::vector<int64_t>> uses;
};

}  // namespace

Result<ExpertProfile> count_expert_uses(const std::shared_ptr<const LanguageModel>& model,
                                        std::span<const TokenId> tokens, const ExpertUsesOptions& options) {
  const ArchSpec& spec = model->parts().model->spec();
  if (std::ranges::none_of(spec.layers, [](const LayerSpec& layer) { return layer.moe; }))
    return Error::unsupported("the model has no mixture of experts");
  MILLRACE_TRY_VOID(check_text_length(std::ssize(tokens), options.context));
  auto windows = chunk_windows(std::ssize(tokens), options.context);
  for (ScoreWindow& window : windows) window.first_scored = 1;  // so that the last layer runs all tokens, too
  MILLRACE_TRY(const auto scorer, Scorer::create(model, {.threads = options.threads, .context = options.context}));
  ExpertUseCounter counter(spec);
  scorer->runner().hooks().add(counter);
  const auto read = scorer->run(tokens, windows, -1, [](std::span<const ScoredRow>) { return Result<void>(); });
  scorer->runner().hooks().remove(counter);
  if (!read.ok()) return read.error();
  return ExpertProfile{.tokens = std::ssize(windows) * options.context, .uses = std::move(counter.uses)};
}

}  // namespace millrace
