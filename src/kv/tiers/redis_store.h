// The prefix store on a Redis server, which engines on any machines share: a block that one of them has computed is
// loaded by the next. Blocks are images (block_image.h) under keys that name model, layout and block:
//
//   PREFIX:32 hex digits of the identity:32 hex digits of the block's key
//
// A remote store (remote_store.h) whose link speaks to the server. Without a connection nothing is found, nothing is
// stored, and no stream waits. The server evicts and expires blocks as it is configured; this side remembers which ones
// it has seen there, so as not to send them again.
#pragma once

#include <memory>
#include <string>

#include "kv/tiers/prefix_store.h"

namespace millrace {

struct RedisStoreOptions {
  std::string host = "127.0.0.1";
  int port = 6379;
  std::string user, password;  // empty: none
  int64_t database = 0;
  std::string prefix = "millrace";
  int64_t ttl_seconds = 86400;  // after which the server forgets a block; 0: never
  double deadline_seconds = 1;  // how long a lookup, a load, or the reply to any command may take
  double retry_seconds = 0.1;   // until the next attempt to connect; twice as long each time, up to 10 s
  std::string identity_text;    // model and arithmetic
};

// Upper bound of its memory: queue of writes, buffers, and the keys that it remembers.
int64_t redis_store_memory(const KvLayout& layout);

// `pool` must outlive it. Waits for the first connection up to the deadline; a server that is not there is no error.
// Errors: user (the server refuses the password or the database), resource (no thread).
Result<std::unique_ptr<PrefixStore>> make_redis_store(KvPool& pool, const RedisStoreOptions& options);

}  // namespace millrace
