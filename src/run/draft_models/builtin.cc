// The loaders of draft models; one line each.
#include <fmt/format.h>

#include <string_view>

#include "run/draft_models/loader.h"

namespace millrace {

extern const DraftModelLoader kWholeDraftModel, kSelfDraftModel, kMedusaDraftModel, kEagleDraftModel, kMtpDraftModel,
    kKangarooDraftModel, kPassDraftModel, kLongspecDraftModel;

namespace {

const DraftModelLoader* const kLoaders[] = {
    &kWholeDraftModel, &kSelfDraftModel,     &kMedusaDraftModel, &kEagleDraftModel,
    &kMtpDraftModel,   &kKangarooDraftModel, &kPassDraftModel,   &kLongspecDraftModel,
};

const DraftModelLoader* find_loader(std::string_view name) {
  for (const DraftModelLoader* one : kLoaders)
    if (one->name == name) return one;
  return nullptr;
}

}  // namespace

const DraftModelLoader* draft_model_loader(const Drafter* drafter) {
  return drafter && drafter->model ? find_loader(drafter->model->spec.loader) : nullptr;
}

Result<std::unique_ptr<LoadedDraftModel>> load_draft_model(const DraftModelSpec& spec, const DraftModelHost& host) {
  const DraftModelLoader* loader = find_loader(spec.loader);
  if (!loader) return Error::internal(fmt::format("drafter: there is no loader '{}' of draft models", spec.loader));
  return loader->load(spec.options, host);
}

Error draft_model_error(const char* name, const Error& error) {
  return {error.kind, fmt::format("drafter {}: {}", name, error.message)};
}

}  // namespace millrace
