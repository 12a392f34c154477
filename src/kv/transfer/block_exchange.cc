#include "kv/transfer/block_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <vector>

#include "kv/transfer/transport.h"

namespace millrace {
namespace {

constexpr size_t kMaxAnnounced = 4096;

// The exchanges of this process, by name.
struct ExchangeNames {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<BlockExchange>> named;
  int64_t last = 0;
};
ExchangeNames& exchange_names() {
  static ExchangeNames names;
  return names;
}

}  // namespace

Result<std::shared_ptr<BlockExchange>> BlockExchange::create(Options options) {
  if (!transports().find(options.transport))
    return Error::user(fmt::format("transport: unknown '{}'; available: {}", options.transport, transports().names()));
  auto exchange = std::shared_ptr<BlockExchange>(new BlockExchange(std::move(options)));
  const Options& given = exchange->options_;
  if (given.keeps) {
    MILLRACE_TRY(exchange->shelf_, BlockShelf::create(given.shelf));
    MILLRACE_TRY(exchange->server_, BlockServer::start(*exchange->shelf_, given.server));
  }
  ExchangeNames& names = exchange_names();
  std::lock_guard lock(names.mutex);
  exchange->name_ = std::to_string(++names.last);
  names.named[exchange->name_] = exchange;
  return exchange;
}

BlockExchange::~BlockExchange() {
  server_.reset();
  ExchangeNames& names = exchange_names();
  std::lock_guard lock(names.mutex);
  names.named.erase(name_);
}

std::shared_ptr<BlockExchange> BlockExchange::find(const std::string& name) {
  ExchangeNames& names = exchange_names();
  std::lock_guard lock(names.mutex);
  const auto found = names.named.find(name);
  return found == names.named.end() ? nullptr : found->second.lock();
}

std::optional<BlockTicket> BlockExchange::issue(std::span<const PrefixKey> keys) {
  if (!shelf_ || keys.empty()) return std::nullopt;
  BlockTicket ticket{
      .host = "-", .port = port(), .lease = shelf_->lease(keys), .key = keys.back(), .blocks = std::ssize(keys)};
  if (ticket.lease == 0) return std::nullopt;
  ++stats_.issued;
  return ticket;
}

void BlockExchange::announce(const BlockTicket& ticket) {
  ++stats_.announced;
  const auto until = BlockShelf::Clock::now() + std::chrono::duration_cast<BlockShelf::Clock::duration>(
                                                    std::chrono::duration<double>(options_.shelf.lease_seconds));
  std::lock_guard lock(mutex_);
  const auto [entry, added] = announced_.insert_or_assign(ticket.key, Announced{ticket, until});
  if (added) order_.push_back(ticket.key);
  for (; order_.size() > kMaxAnnounced; order_.pop_front()) announced_.erase(order_.front());
}

// The ticket of the longest prefix.
std::optional<BlockTicket> BlockExchange::source_of(std::span<const ChainLink> chain) {
  const auto now = BlockShelf::Clock::now();
  std::lock_guard lock(mutex_);
  if (announced_.empty()) return std::nullopt;
  for (size_t i = chain.size(); i-- > 0;) {
    const auto found = announced_.find(chain[i].key);
    if (found == announced_.end() || found->second.until < now) continue;
    ++stats_.used;
    return found->second.ticket;
  }
  return std::nullopt;
}

std::string BlockExchange::metrics_text() const {
  std::string out;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
  };
  add("millrace_transfer_tickets_issued_total", "counter", "Prompts whose blocks this node offered to others",
      stats_.issued);
  add("millrace_transfer_tickets_received_total", "counter", "Prompts whose blocks a router said another node holds",
      stats_.announced);
  add("millrace_transfer_lookups_total", "counter", "Lookups of blocks on the node that a ticket names", stats_.used);
  if (!shelf_) return out;
  const ShelfStats shelf = shelf_->stats();
  add("millrace_transfer_capacity_bytes", "gauge", "Memory for blocks that other nodes read", shelf.capacity);
  add("millrace_transfer_free_bytes", "gauge", "Part of it without a block", shelf.free);
  add("millrace_transfer_held_bytes", "gauge", "Part of it with blocks that a lease holds", shelf.held);
  add("millrace_transfer_idle_bytes", "gauge", "Part of it with blocks that may be evicted", shelf.idle);
  add("millrace_transfer_blocks", "gauge", "Blocks that other nodes may read", shelf.blocks);
  add("millrace_transfer_leases", "gauge", "Leases on these blocks", shelf.leases);
  add("millrace_transfer_stored_blocks_total", "counter", "Blocks that were stored for other nodes",
      shelf.stored_blocks);
  add("millrace_transfer_read_blocks_total", "counter", "Blocks that other nodes read", shelf.read_blocks);
  add("millrace_transfer_read_bytes_total", "counter", "Bytes that other nodes read", shelf.read_bytes);
  add("millrace_transfer_evicted_blocks_total", "counter", "Blocks that were evicted for others", shelf.evicted_blocks);
  add("millrace_transfer_refused_blocks_total", "counter", "Blocks for which there was no room", shelf.refused_blocks);
  add("millrace_transfer_refused_reads_total", "counter", "Reads of blocks that the reader's lease did not cover",
      shelf.refused_reads);
  add("millrace_transfer_expired_leases_total", "counter", "Leases that ended by time", shelf.expired_leases);
  return out;
}

}  // namespace millrace
