// Route: chooses the node of a request. One record each in route.cc. A route sees the nodes that may be chosen, and the
// parts of the request that the router reads.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cluster/node_table.h"

namespace millrace {

// Digests of the beginnings of a request's text: entry i is that of the first (i + 1) * kPrefixBytes bytes.
inline constexpr size_t kPrefixBytes = 256;
std::vector<uint64_t> prefix_digests(std::string_view text);

// Remembers which node has seen which beginning of a text, the last `most` of them. Thread-safe.
class PrefixMemory {
 public:
  explicit PrefixMemory(size_t most = size_t{1} << 18) : most_(most) {}
  void add(std::span<const uint64_t> digests, size_t node);
  // The number of leading digests that the node has seen.
  size_t known(std::span<const uint64_t> digests, size_t node) const;

 private:
  const size_t most_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> nodes_;  // by digest
  std::deque<uint64_t> order_;                                 // digests in order of arrival
};

struct RouteInput {
  std::span<const NodeView> nodes;  // that may be chosen; at least one
  std::span<const uint64_t> prefix;
  uint64_t session = 0;  // digest of what the requests of a conversation have in common; 0: unknown
  uint64_t number = 0;   // number of the request, from 0
  const PrefixMemory* memory = nullptr;
};

struct Route {
  std::string_view name;
  std::string_view summary;
  size_t (*choose)(const RouteInput& input) = nullptr;  // returns an index into `nodes`
};

std::span<const Route> routes();
const Route* find_route(std::string_view name);  // null: there is none

}  // namespace millrace
