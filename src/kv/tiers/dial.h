// dial(): connects to a host by TCP.
#pragma once

#include <string>

namespace millrace {

// Waits up to `seconds` for each address of the host. Returns a socket that does not block and sends without delay; -1:
// no connection.
int dial(const std::string& host, int port, double seconds);

}  // namespace millrace
