// Models named by their location on a hub: "hf:OWNER/NAME", "hf:OWNER/NAME:FILE".
#pragma once

#include "hub/pull.h"

namespace millrace {

// Downloads a model, with a progress bar on a terminal.
Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options);

// Returns `path` unchanged, or for "hf:..." the path in the cache, downloading it if necessary.
Result<std::string> local_model(const std::string& path);

}  // namespace millrace
