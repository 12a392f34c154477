#include "hub_model.h"

#include <fmt/format.h>

#include <memory>

#include "progress.h"

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

Result<std::string> local_model(const std::string& path) {
  if (!path.starts_with("hf:")) return path;
  MILLRACE_TRY(const PulledModel pulled, pull_with_bar(path, {}));
  return pulled.path;
}

}  // namespace millrace
