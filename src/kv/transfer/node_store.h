// The prefix store of an engine that is part of a cluster. A lookup asks the node that a ticket names
// (block_exchange.h), or else the store node, if there is one; a block that is computed is put on this node's shelf and
// on the store node. Each other node has a link with a thread of its own (tiers/remote_store.h).
//
// With recurrent layers, the copy of the state behind the prompt moves with its blocks, in pieces.
#pragma once

#include <memory>
#include <string>

#include "kv/tiers/prefix_store.h"

namespace millrace {

struct NodeStoreOptions {
  std::string exchange;  // name of the process's exchange; "": none
  std::string host;      // store node; "": none
  int port = 0;
  std::string transport = "tcp";
  double deadline_seconds = 1;
  std::string identity_text;  // model and arithmetic
};

// Upper bound of its memory, without the shelf.
int64_t node_store_memory(const KvLayout& layout, const NodeStoreOptions& options);

// `pool` must outlive it. Errors: user (no such exchange or transport; the store node refuses the key), resource.
Result<std::unique_ptr<PrefixStore>> make_node_store(KvPool& pool, const NodeStoreOptions& options);

}  // namespace millrace
