// Errors of the network: no connection, a connection that is lost, a port in use. A kind beside those of the public
// header, whose users treat it as any other; programs end with exit code 6.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace millrace {

inline constexpr ErrorKind kNetworkError{6};

inline Error network_error(std::string message) { return {kNetworkError, std::move(message)}; }

}  // namespace millrace
