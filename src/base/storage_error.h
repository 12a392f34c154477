// Errors of the disk: no space, a quota, an I/O error. Their kind is not in the public header, whose users treat it as
// any other kind.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

inline constexpr ErrorKind kStorageError{7};

inline Error storage_error(std::string message) { return {kStorageError, std::move(message)}; }

}  // namespace millrace
