// Transport: how images of blocks get from another node to this one. A member makes the reader's side, a link
// (tiers/remote_link.h): connect, then any number of asynchronous questions and fetches, whose replies arrive in order.
// The sender only holds the blocks under a lease (Chen et al., 2024, KVDirect). Every image that a link delivers is
// verified by its user, so a transport need not be reliable; it must deliver or close within the user's deadlines.
#pragma once

#include <memory>
#include <string>

#include "base/registry.h"
#include "kv/tiers/block_image.h"
#include "kv/tiers/remote_link.h"
#include "kv/transfer/block_server.h"

namespace millrace {

struct TransportOptions {
  std::string host;
  int port = 0;
  TransferToken token{};
  StoreIdentity identity;
  int64_t image_bytes = 0;  // size of every block's image
};

struct TransportMember {
  std::unique_ptr<RemoteLink> (*link)(TransportOptions options) = nullptr;
  bool same_machine = false;  // reaches nodes of this machine only
};

const Registry<TransportMember>& transports();

}  // namespace millrace
