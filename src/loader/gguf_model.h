// Opens GGUF files as ModelFiles: a single file, or all parts of a split file.
#pragma once

#include <string>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// `path` is a GGUF file or any part of a split one (NAME-00001-of-00003.gguf); all parts must be in the same folder.
Result<ModelFiles> open_gguf(const std::string& path);

}  // namespace millrace
