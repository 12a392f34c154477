// Errors of the network: no connection, a lost connection, a port in use. Their kind is not in the public header, whose
// users treat it as any other kind; programs end with exit code 6.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

inline constexpr ErrorKind kNetworkError{6};

inline Error network_error(std::string message) { return {kNetworkError, std::move(message)}; }

}  // namespace millrace
