// BlockExchange: a node's part in the transfer of blocks between nodes: the shelf of blocks that it offers, the server
// that others read them from, and what routers have said about blocks on other nodes. One exchange serves all engines
// of a process. The HTTP server issues and receives tickets; the engines' stores (node_store.h) put and read blocks. An
// engine's options are text, so a store finds its exchange by a name. Thread-safe.
//
//   node that prefills:   engine --put--> shelf <--read-- BlockServer        issue(): a ticket for a prompt's blocks
//   node that decodes:    announce(ticket)   engine's lookup --source_of()--> link to the other node
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "kv/transfer/block_server.h"
#include "kv/transfer/block_shelf.h"
#include "kv/transfer/block_ticket.h"

namespace millrace {

struct TransferStats {
  std::atomic<int64_t> issued{0};     // tickets that this node gave
  std::atomic<int64_t> announced{0};  // tickets of other nodes that routers sent here
  std::atomic<int64_t> used{0};       // lookups that asked another node
};

class BlockExchange {
 public:
  struct Options {
    bool keeps = false;  // has a shelf and a server
    BlockShelf::Options shelf;
    BlockServer::Options server;  // its token is that of the readers, too
    std::string transport = "tcp";
  };
  // Errors: as BlockShelf::create() and BlockServer::start().
  static Result<std::shared_ptr<BlockExchange>> create(Options options);
  ~BlockExchange();
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;
  // Null: no exchange of this process has the name.
  static std::shared_ptr<BlockExchange> find(const std::string& name);

  const std::string& name() const { return name_; }
  const Options& options() const { return options_; }
  BlockShelf* shelf() const { return shelf_.get(); }  // null: the node offers no blocks
  int port() const { return server_ ? server_->port() : 0; }

  // A ticket for the blocks with these keys, in order. Its host is "-": the router knows by which address it reaches
  // this node. Nothing: the node offers no blocks, or has too many leases.
  std::optional<BlockTicket> issue(std::span<const PrefixKey> keys);
  // Another node holds blocks, as a router says. Valid until the lease's default time has passed.
  void announce(const BlockTicket& ticket);
  // The ticket for one of these blocks; nothing: no node is known to hold them.
  std::optional<BlockTicket> source_of(std::span<const ChainLink> chain);

  TransferStats& stats() { return stats_; }
  // In Prometheus' text format.
  std::string metrics_text() const;

 private:
  explicit BlockExchange(Options options) : options_(std::move(options)) {}

  struct Announced {
    BlockTicket ticket;
    BlockShelf::Clock::time_point until;
  };
  Options options_;
  std::string name_;
  std::unique_ptr<BlockShelf> shelf_;
  std::unique_ptr<BlockServer> server_;
  TransferStats stats_;
  std::mutex mutex_;
  std::unordered_map<PrefixKey, Announced, PrefixKeyHash> announced_;
  std::deque<PrefixKey> order_;  // oldest first
};

}  // namespace millrace
