// Reads a file that was fitted to a model for an attention pattern.
#pragma once

#include <string>

#include "base/result.h"

namespace millrace {

// Errors: user (the file does not exist), corrupt (the file is too long).
Result<std::string> read_fitted_text(const std::string& path);

}  // namespace millrace
