// CacheModel: computes the hits that a prefix cache of a given size and policy would have had on a load. It uses the
// PrefixTree and the evictors of the engine's prefix index, without tokens and blocks.
//
// A request is looked up and then stored, both at its arrival. Each node has its own cache. To model a global cache,
// use one node with the sum of the capacities.
#pragma once

#include <span>

#include "kv/prefix_tree.h"
#include "workload/request.h"

namespace millrace {

// Chooses the node of a request.
enum class CacheRoute {
  in_turn,  // request i to node i mod N, like a router that is not cache-aware
  prefix,   // the node that has most of the prompt, if it has at least half of it; else the node with the fewest prompt
            // tokens so far; like cache-aware routers
};

struct CacheSpec {
  const PrefixEvictor* evictor = nullptr;
  int64_t capacity_blocks = 0;  // blocks of each node; 0: unlimited
  int64_t nodes = 1;
  int64_t token_block = 16;  // for prompts given as tokens
  CacheRoute route = CacheRoute::in_turn;
};

struct CacheResult {
  int64_t blocks = 0, hit_blocks = 0;
  int64_t tokens = 0, hit_tokens = 0;  // tokens of all prompts
  PrefixTreeStats stored;              // over all nodes
  double load_ratio = 1;               // prompt tokens of the busiest node relative to the mean

  double block_ratio() const { return blocks ? static_cast<double>(hit_blocks) / static_cast<double>(blocks) : 0; }
  double token_ratio() const { return tokens ? static_cast<double>(hit_tokens) / static_cast<double>(tokens) : 0; }
};

CacheResult run_cache(std::span<const WorkloadRequest> requests, const CacheSpec& spec);

}  // namespace millrace
