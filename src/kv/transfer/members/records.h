// The built-in transports.
#pragma once

#include "kv/transfer/transport.h"

namespace millrace {

extern const TransportMember kTcpTransport;
extern const TransportMember kShmTransport;

}  // namespace millrace
