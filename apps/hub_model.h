// Models that are named by where they lie on a hub: "hf:OWNER/NAME", "hf:OWNER/NAME:FILE".
#pragma once

#include "hub/pull.h"

namespace millrace {

// With a progress bar on a terminal.
Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options);

// `path` as it is, or the file in the cache that "hf:..." stands for, fetched if need be.
Result<std::string> local_model(const std::string& path);

}  // namespace millrace
