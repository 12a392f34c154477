// The default path of a model's packed cache.
#pragma once

#include <string>

namespace millrace {

// PATH.millrace-packed next to a model file, FOLDER/NAME.millrace-packed in a model's folder. Where that folder is not
// writable and has no cache already: NAME-HASH.millrace-packed in $XDG_CACHE_HOME/millrace or ~/.cache/millrace, which
// is created. "" where that fails, too.
std::string default_packed_cache_path(const std::string& model_path);

}  // namespace millrace
