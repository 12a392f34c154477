// The built-in tiers and stores.
#include "kv/tiers/members/records.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

const Registry<TierMember>& kv_tiers() {
  static const Registry<TierMember> registry(
      {.loss = Loss::lossless, .test = "tests/properties/engine_preemptions_test.cc", .proof = "docs/kv-tiers.md"},
      {
          {{"tier",
            "memory",
            "host memory for preempted streams, which then need not be computed again",
            "Kwon et al., 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention",
            {{"tokens", Type::integer, "0", 0, 1099511627776.0, "room, in tokens"}}},
           kMemoryTier},
          {{"tier",
            "disk",
            "a file on a fast disk for keys of running streams that do not fit in memory, read layer by layer",
            "Sheng et al., 2023, FlexGen: High-Throughput Generative Inference of Large Language Models with a Single "
            "GPU",
            {{"path", Type::text, "", 0, 0, "folder of the file, on a fast disk; it needs room for all keys"},
             {"memory", Type::text, "0", 0, 0,
              "keys and values in memory, in bytes or such as 500M; 0: what --memory leaves"},
             {"ahead", Type::integer, "1", 0, 1,
              "1: read the keys of a layer while the layer before it computes; 0: when it needs them"}},
            Loss::lossless,
            "tests/properties/key_stream_test.cc"},
           kDiskTier},
      });
  return registry;
}

const Registry<StoreMember>& kv_stores() {
  static const Registry<StoreMember> registry(
      {.loss = Loss::lossless, .test = "tests/properties/engine_store_test.cc", .proof = "docs/kv-tiers.md"},
      {
          {{"store",
            "ssd",
            "a file on a fast disk for blocks evicted from the prefix cache",
            "Gao et al., 2024, Cost-Efficient Large Language Model Serving for Multi-turn Conversations with "
            "CachedAttention",
            {{"path", Type::text, "", 0, 0, "the file; it is allocated at its full size"},
             {"size", Type::text, "8G", 0, 0, "maximum size of the file, in bytes or such as 500M"},
             {"order", Type::text, "arrival", 0, 0,
              "order of blocks in the file and of reading: arrival or importance"},
             {"fetch", Type::number, "1", 0.01, 1,
              "fraction of a prompt's stored blocks to fetch, most important first; the others are left out of "
              "attention. Below 1, answers change"},
             {"deadline_ms", Type::integer, "10000", 1, 3600000,
              "how long a load may take; then its tokens are computed"}}},
           kSsdStore},
          {{"store",
            "redis",
            "a Redis server for blocks that several engines share",
            "Qin et al., 2025, Mooncake: Trading More Storage for Less Computation",
            {{"host", Type::text, "127.0.0.1", 0, 0, "name or address of the server"},
             {"port", Type::integer, "6379", 1, 65535, "its port"},
             {"db", Type::integer, "0", 0, 1e6, "number of the database"},
             {"user", Type::text, "", 0, 0, "user to log in as; empty: the server's default user"},
             {"password_env", Type::text, "", 0, 0, "environment variable that holds the password; empty: no login"},
             {"prefix", Type::text, "millrace", 0, 0, "beginning of every key"},
             {"ttl", Type::integer, "86400", 0, 1e9, "seconds after which the server forgets a block; 0: never"},
             {"deadline_ms", Type::integer, "1000", 1, 3600000,
              "how long a lookup may take, and then a load; then the tokens are computed"}},
            Loss::lossless,
            "tests/properties/engine_redis_test.cc"},
           kRedisStore},
          {{"store",
            "node",
            "other nodes of a cluster: the one that computed a prompt, and a store node",
            "Zhong et al., 2024, DistServe: Disaggregating Prefill and Decoding for Goodput-optimized Large Language "
            "Model Serving",
            {{"host", Type::text, "", 0, 0, "name or address of the store node; empty: none"},
             {"port", Type::integer, "0", 0, 65535, "its port for blocks"},
             {"transport", Type::text, "tcp", 0, 0, "how blocks of the store node move: tcp or shm"},
             {"exchange", Type::text, "", 0, 0, "name of the process's exchange; millrace serve sets it"},
             {"deadline_ms", Type::integer, "1000", 1, 3600000,
              "how long a lookup may take, and then a load; then the tokens are computed"}},
            Loss::lossless,
            "tests/properties/engine_nodes_test.cc"},
           kNodeStore},
      });
  return registry;
}

}  // namespace millrace
