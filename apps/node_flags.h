// The part of a server in a cluster: its role, and how it moves blocks of keys and values to other nodes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/result.h"
#include "kv/transfer/block_exchange.h"

namespace millrace {

struct NodeFlags {
  std::string role = "mixed", host, memory = "1G", transport = "tcp", key_file;
  int port = 0;
  double lease_seconds = 30, tenant_share = 1;

  void add_to(CLI::App* command);
  bool is_store() const { return role == "store"; }
  // The node's exchange; null: it moves no blocks. `kv_store`: in and out, the engines' store, which the exchange
  // becomes part of. `http_host`: where the server listens. Errors: user, network, resource.
  Result<std::shared_ptr<BlockExchange>> make(const std::string& http_host, std::string& kv_store) const;
};

}  // namespace millrace
