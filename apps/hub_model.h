// Models by the names that -m takes: a file or folder, a built-in model, a model of the store, or one of a hub,
// "hf:OWNER/NAME[:FILE]", which is downloaded.
#pragma once

#include <optional>

#include "hub/model_store.h"
#include "hub/pull.h"
#include "loader/model_files.h"

namespace millrace {

// Downloads a model, with a progress bar on a terminal.
Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options);

struct LocalModel {
  std::string path;                 // a file, a folder or a built-in name
  std::optional<Modelfile> stored;  // settings of a model of the store
};

// Downloads a model of a hub if necessary, and notes the use of one of the store.
Result<LocalModel> find_local_model(const std::string& name);
Result<std::string> local_model(const std::string& name);  // its path only
// open_model() of it.
Result<ModelFiles> open_local_model(const std::string& name);

}  // namespace millrace
