// Disk errors: no space, a quota, an I/O error. ErrorKind does not list this kind; users of the public header treat it
// as an unknown kind.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

inline constexpr ErrorKind kStorageError{7};

inline Error storage_error(std::string message) { return {kStorageError, std::move(message)}; }

}  // namespace millrace
