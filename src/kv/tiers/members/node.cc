// Other nodes of a cluster, for blocks that they computed or store.
#include "kv/tiers/members/records.h"
#include "kv/transfer/node_store.h"

namespace millrace {
namespace {

Result<NodeStoreOptions> node_options(const OptionValues& given) {
  NodeStoreOptions options;
  options.exchange = given.text("exchange");
  options.host = given.text("host");
  options.port = static_cast<int>(given.integer("port"));
  options.transport = given.text("transport");
  options.deadline_seconds = static_cast<double>(given.integer("deadline_ms")) * 1e-3;
  if (options.host.empty() && options.exchange.empty())
    return Error::user("KV store: needs a store node, host=...,port=...");
  if (!options.host.empty() && options.port == 0) return Error::user("KV store: needs the store node's port, port=...");
  return options;
}

}  // namespace

const StoreMember kNodeStore = {
    .memory = [](const KvLayout& layout, const OptionValues& given) -> Result<int64_t> {
      MILLRACE_TRY(const NodeStoreOptions options, node_options(given));
      return node_store_memory(layout, options);
    },
    .make = [](KvPool& pool, std::string identity, const OptionValues& given) -> Result<std::unique_ptr<PrefixStore>> {
      MILLRACE_TRY(NodeStoreOptions options, node_options(given));
      options.identity_text = std::move(identity);
      return make_node_store(pool, options);
    },
};

}  // namespace millrace
