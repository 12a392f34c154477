// Network errors: no connection, a lost connection, a port in use. ErrorKind does not list this kind; users of the
// public header treat it as an unknown kind. Programs end with exit code 6.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

inline constexpr ErrorKind kNetworkError{6};

inline Error network_error(std::string message) { return {kNetworkError, std::move(message)}; }

}  // namespace millrace
