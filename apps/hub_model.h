// Models by the names that -m takes: a file or folder, a built-in model, a model of the store or the cache (by
// a short name, too), or one of a hub, "hf:OWNER/NAME[:FILE]", which is downloaded.
#pragma once

#include <optional>

#include "hub/model_store.h"
#include "hub/pull.h"
#include "hub/short_names.h"
#include "loader/model_files.h"

namespace millrace {

// The repository and file of a name on a hub or of a short name. Errors: user (it is neither; near names are
// suggested), and those of short_names().
Result<HubName> hub_name_of(const std::string& name);

// Returns true if a name says that it is one of a hub, as "hf:OWNER/NAME" and "hf.co/OWNER/NAME" do. Such a model is
// downloaded without a question.
bool names_hub(const std::string& name);

// "; did you mean llama3.1 or llama3.2?", or "". `all`: of short_names().
std::string names_like(const std::string& name, const std::vector<ShortName>& all);

// Downloads a model, with a progress bar on a terminal. Ctrl-C ends the process after one line: what has arrived stays,
// and the next pull continues.
Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options);

// Returns true if a name is written as a path, so that it can be neither a name of the store nor of a hub.
bool looks_like_path(const std::string& name);

// "NAME: no such file, and no model on this machine has that name; ...", with a near name.
std::string no_such_model(const std::string& name);

struct LocalModel {
  std::string path;                 // a file, a folder or a built-in name
  std::optional<Modelfile> stored;  // settings of a model of the store
};

// Downloads a model of a hub if necessary, and notes the use of one of the store. Errors: user (nothing has that name),
// corrupt (a short name whose model is not on this machine), those of a download.
Result<LocalModel> find_local_model(const std::string& name);
Result<std::string> local_model(const std::string& name);  // its path only
// open_model() of it.
Result<ModelFiles> open_local_model(const std::string& name);

}  // namespace millrace
