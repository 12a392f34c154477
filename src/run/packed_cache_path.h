// Where a model's packed cache lies when nobody says.
#pragma once

#include <string>

namespace millrace {

// PATH.millrace-packed beside the model, FOLDER/NAME.millrace-packed in a model's folder; where that folder cannot be
// written (and holds none already), NAME-HASH.millrace-packed in $XDG_CACHE_HOME/millrace or ~/.cache/millrace, which
// is made if need be. "" where there is no such place either.
std::string default_packed_cache_path(const std::string& model_path);

}  // namespace millrace
