// BlockTicket: says that a node holds the blocks of a prompt, and under which lease. The node that computed the prompt
// makes it, and the node that continues the prompt uses it:
//
//   Millrace-Blocks: from=10.0.0.7:40123, lease=9f03..., key=5c1e..., blocks=118
//
// The key is that of the last block. It depends on all tokens before it and on the tenant (prefix_key.h), so a ticket
// is of use to the same prompt of the same tenant only.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kv/prefix_key.h"

namespace millrace {

struct BlockTicket {
  static constexpr const char* kHeader = "Millrace-Blocks";

  std::string host;  // address of the node's server of blocks; an IPv6 address without brackets
  int port = 0;
  uint64_t lease = 0;
  PrefixKey key;       // key of the last block
  int64_t blocks = 0;  // number of the prompt's blocks

  std::string text() const;
  // The value of the header; nothing if it is malformed.
  static std::optional<BlockTicket> parse(std::string_view text);
};

}  // namespace millrace
