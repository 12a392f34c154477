#include "hub_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "progress.h"
#include "run/embedded_model.h"
#include "run/language_model.h"

namespace millrace {

Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options) {
  MILLRACE_TRY(const HubName hub, parse_hub_name(name));
  ProgressBar bar("downloading");
  options.progress = [&](const PullProgress& now) {
    const double done = now.total > 0 ? static_cast<double>(now.bytes) / static_cast<double>(now.total) : 1;
    bar.update(done, fmt::format("{:.0f} of {:.0f} MB", static_cast<double>(now.bytes) * 1e-6,
                                 static_cast<double>(now.total) * 1e-6));
  };
  return pull_model(hub, options);
}

Result<LocalModel> find_local_model(const std::string& name) {
  if (name.starts_with("hf:") || name.starts_with("hf.co/")) {
    const std::string canonical = canonical_model_name(name);
    MILLRACE_TRY(const PulledModel pulled, pull_with_bar(canonical, {}));
    ModelStore().note_use(canonical);
    return LocalModel{.path = pulled.path, .stored = {}};
  }
  std::error_code ignored;
  if (name.empty() || find_embedded_model(name) || std::filesystem::exists(name, ignored))
    return LocalModel{.path = name, .stored = {}};
  const ModelStore store;
  const auto found = store.find(name);
  if (!found) return LocalModel{.path = name, .stored = {}};
  store.note_use(found->name);
  return LocalModel{.path = found->path, .stored = found->about};
}

Result<std::string> local_model(const std::string& name) {
  MILLRACE_TRY(LocalModel model, find_local_model(name));
  return std::move(model.path);
}

Result<ModelFiles> open_local_model(const std::string& name) {
  MILLRACE_TRY(const std::string path, local_model(name));
  return open_model(path);
}

}  // namespace millrace
