// The built-in transports.
#include "kv/transfer/members/records.h"

namespace millrace {

const Registry<TransportMember>& transports() {
  static const Registry<TransportMember> registry(
      {.loss = Loss::lossless, .test = "src/kv/transfer/node_store_test.cc", .proof = "docs/cluster.md"},
      {
          {{"transport",
            "tcp",
            "images of blocks over TCP connections between nodes",
            "Chen et al., 2024, KVDirect: Distributed Disaggregated LLM Inference",
            {}},
           kTcpTransport},
          {{"transport",
            "shm",
            "images of blocks copied from the memory of a node on the same machine, which is mapped",
            "Chen et al., 2024, KVDirect: Distributed Disaggregated LLM Inference",
            {}},
           kShmTransport},
      });
  return registry;
}

}  // namespace millrace
