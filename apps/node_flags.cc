#include "node_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory_accounts.h"
#include "base/secret_memory.h"
#include "durations.h"
#include "kv/transfer/transport.h"
#include "server/access/api_keys.h"
#include "server/access/key_digest.h"

namespace millrace {
namespace {

Result<TransferToken> read_token(const std::string& path) {
  if (path.empty()) return TransferToken{};
  MILLRACE_TRY(std::string text, read_secret_file(path, kMaxKeysFileBytes));
  std::string line = text.substr(0, text.find('\n'));
  wipe(text);
  if (line.empty()) return Error::corrupt(path + ": contains no key; expected one in its first line");
  line.insert(0, "millrace blocks ");
  const KeyDigest digest = key_digest(line);
  wipe(line);
  return digest;
}

bool is_loopback_host(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

void NodeFlags::add_to(CLI::App* command) {
  command->option_defaults()->group("Cluster");
  command
      ->add_option(
          "--role", role,
          "Part of this server in a cluster. mixed: answers requests; prefill: also computes prompts for other "
          "nodes; decode: also continues prompts that other nodes computed; store: has no model and keeps "
          "blocks for other nodes")
      ->capture_default_str()
      ->check(CLI::IsMember({"mixed", "prefill", "decode", "store"}));
  command->add_option("--transfer-host", host, "Address at which other nodes read blocks; default: that of --host");
  command->add_option("--transfer-port", port, "Its port; 0: any free port")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command->add_option("--transfer-memory", memory, "Memory for blocks that other nodes read, such as 4G")
      ->capture_default_str();
  command
      ->add_option("--transfer-lease", lease_seconds,
                   "Time for which blocks are held for a node that does not read them")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.1, 3600.0));
  command
      ->add_option("--transfer-tenant-share", tenant_share,
                   "Part of the memory for blocks that one tenant's blocks may take")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  command
      ->add_option("--transfer-key-file", key_file,
                   "File whose first line is the key that the nodes of the cluster have in common")
      ->type_name("FILE");
  std::vector<std::string> names;
  for (const auto& entry : transports().entries()) names.push_back(entry.info.name);
  command
      ->add_option("--transport", transport,
                   "How this node reads blocks of nodes on the same machine: tcp, or shm, which maps their memory; "
                   "blocks of other machines are read by tcp")
      ->capture_default_str()
      ->check(CLI::IsMember(names));
}

Result<std::shared_ptr<BlockExchange>> NodeFlags::make(const std::string& http_host, std::string& kv_store) const {
  const bool by_nodes = kv_store == "node" || kv_store.starts_with("node:");
  if (role == "mixed" && !by_nodes) return std::shared_ptr<BlockExchange>();
  if (!kv_store.empty() && !by_nodes)
    return Error::user(fmt::format(
        "--role {}: blocks move through the store 'node', and --kv-store names another one; remove it", role));
  BlockExchange::Options options;
  options.keeps = role == "prefill" || role == "store";
  options.transport = transport;
  MILLRACE_TRY(options.server.token, read_token(key_file));
  options.server.host = host.empty() ? http_host : host;
  options.server.port = port;
  options.server.open_reads = options.server.accepts = is_store();
  if (options.keeps && key_file.empty() && !is_loopback_host(options.server.host))
    return Error::user(fmt::format("--transfer-host {}: other machines could read blocks; set --transfer-key-file",
                                   options.server.host));
  MILLRACE_TRY(options.shelf.bytes, parse_bytes(memory));
  if (options.shelf.bytes < (int64_t{1} << 20)) return Error::user("--transfer-memory: must be at least 1M");
  options.shelf.lease_seconds = lease_seconds;
  options.shelf.tenant_share = tenant_share;
  MILLRACE_TRY(auto exchange, BlockExchange::create(std::move(options)));
  if (is_store()) return exchange;
  kv_store += fmt::format("{}exchange={}",
                          kv_store.empty()     ? "node:"
                          : kv_store == "node" ? ":"
                                               : ",",
                          exchange->name());
  return exchange;
}

}  // namespace millrace
