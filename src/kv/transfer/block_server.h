// BlockServer: serves the blocks of a shelf (block_shelf.h) to other nodes, in frames (block_frame.h), on one thread. A
// reader connects by TCP, which carries the images; or, on the same machine and as the same user, by a Unix socket,
// which passes the shelf's memory for mapping and carries ranges of it. The reader does the work: after its question,
// this side only holds the blocks until they are read or the lease ends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/result.h"
#include "kv/transfer/block_shelf.h"

namespace millrace {

// A digest of the cluster's key, which a reader must know. All zero: no key.
using TransferToken = std::array<uint8_t, 32>;

// The path of the Unix socket of a server that listens at this TCP port.
std::string transfer_socket_path(int port);

class BlockServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;  // 0: any free port
    TransferToken token{};
    bool open_reads = false;  // readers need no lease of a request: the node is a store
    bool accepts = false;     // stores blocks that others send
  };
  // `shelf` outlives the server. Errors: network (the address), resource.
  static Result<std::unique_ptr<BlockServer>> start(BlockShelf& shelf, Options options);
  ~BlockServer();
  BlockServer(const BlockServer&) = delete;
  BlockServer& operator=(const BlockServer&) = delete;

  int port() const { return port_; }

  class Connection;  // block_server.cc

 private:
  BlockServer(BlockShelf& shelf, Options options) : shelf_(shelf), options_(std::move(options)) {}
  Result<void> listen_tcp();
  Result<void> listen_local();
  void loop();

  BlockShelf& shelf_;
  const Options options_;
  int tcp_ = -1, local_ = -1;  // listening sockets
  int port_ = 0;
  std::array<int, 2> stop_{-1, -1};
  std::thread thread_;
};

}  // namespace millrace
