#include "run/feature_runner.h"

#include <fmt/format.h>

#include "run/eagle_runner.h"
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
  auto layer = EagleLayer::load(path, *parts.model, parts.kernels, pool, context, parts.accounts);
  if (!layer.ok()) return failed("eagle", layer.error());
  return std::unique_ptr<FeatureRunner>(std::make_unique<EagleRunner>(std::move(*layer)));
}

}  // namespace millrace
