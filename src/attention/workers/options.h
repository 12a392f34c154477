// AttentionWorkerOptions: where an engine keeps keys and values outside its own process (He and Zhai, 2024,
// "FastDecode: High-Throughput GPU-Efficient LLM Serving using Heterogeneous Pipelines"). Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct AttentionWorkerOptions {
  // How rows travel: through memory that both processes map, or in the frames themselves.
  enum class Transport : uint8_t { shared_memory, socket };

  int64_t count = 1;    // worker processes; each holds its share of the KV heads of every layer
  int64_t threads = 1;  // threads of each worker
  int64_t batches = 1;  // mini-batches of a step; with 2, one attends while the matrices of the other run
  Transport transport = Transport::shared_memory;
  double timeout_seconds = 10;          // a worker that takes longer for one layer counts as dead
  std::vector<std::string> hosts = {};  // HOST:PORT of running workers; empty: the engine starts its own
  std::string program = {};             // program of own workers; empty: this program, or millrace next to it
};

}  // namespace millrace
