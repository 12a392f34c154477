#include "cluster/route.h"

#include <xxhash.h>

#include <algorithm>

namespace millrace {
namespace {

// A node takes this many more requests than the least loaded one for the sake of a prefix that it knows.
constexpr int64_t kPrefixSlack = 4;

size_t in_turn(const RouteInput& input) { return input.number % input.nodes.size(); }

size_t least_loaded(const RouteInput& input) {
  size_t best = 0;
  // Nodes with equally many requests are chosen in turn.
  const size_t first = input.number % input.nodes.size();
  for (size_t i = 0; i < input.nodes.size(); ++i) {
    const size_t at = (first + i) % input.nodes.size();
    if (i == 0 || input.nodes[at].open < input.nodes[best].open) best = at;
  }
  return best;
}

uint64_t mixed(uint64_t a, uint64_t b) {
  const uint64_t both[2] = {a, b};
  return XXH3_64bits(both, sizeof(both));
}

// The less loaded of two nodes drawn at random (Mitzenmacher, 2001).
size_t power_of_two(const RouteInput& input) {
  const size_t n = input.nodes.size();
  const size_t a = mixed(input.number, 1) % n, b = mixed(input.number, 2) % n;
  return input.nodes[b].open < input.nodes[a].open ? b : a;
}

// The node with the highest digest of session and name, so that a node that leaves moves its own sessions alone
// (rendezvous hashing, Thaler and Ravishankar, 1998).
size_t session(const RouteInput& input) {
  if (input.session == 0) return least_loaded(input);
  size_t best = 0;
  uint64_t highest = 0;
  for (size_t i = 0; i < input.nodes.size(); ++i)
    if (const uint64_t digest = mixed(input.session, input.nodes[i].index + 1); digest >= highest)
      best = i, highest = digest;
  return best;
}

size_t prefix(const RouteInput& input) {
  const size_t least = least_loaded(input);
  const int64_t most = input.nodes[least].open + kPrefixSlack;
  size_t best = least, longest = input.memory->known(input.prefix, input.nodes[least].index);
  for (size_t i = 0; i < input.nodes.size(); ++i) {
    if (input.nodes[i].open > most) continue;
    const size_t known = input.memory->known(input.prefix, input.nodes[i].index);
    if (known > longest) best = i, longest = known;
  }
  return best;
}

constexpr Route kRoutes[] = {
    {"prefix", "The node that has seen the longest beginning of the request's text, unless it is much busier", prefix},
    {"least_loaded", "The node with the fewest requests", least_loaded},
    {"power_of_two", "The less loaded of two nodes drawn at random", power_of_two},
    {"session", "One node for all requests of a session, by rendezvous hashing", session},
    {"in_turn", "One node after the other", in_turn},
};

}  // namespace

std::vector<uint64_t> prefix_digests(std::string_view text) {
  std::vector<uint64_t> out;
  uint64_t before = 0;
  for (size_t at = 0; at + kPrefixBytes <= text.size(); at += kPrefixBytes) {
    before = XXH3_64bits_withSeed(text.data() + at, kPrefixBytes, before);
    out.push_back(before);
  }
  return out;
}

void PrefixMemory::add(std::span<const uint64_t> digests, size_t node) {
  std::lock_guard lock(mutex_);
  for (const uint64_t digest : digests) {
    auto [found, added] = nodes_.try_emplace(digest);
    if (added) order_.push_back(digest);
    if (std::ranges::find(found->second, node) == found->second.end())
      found->second.push_back(static_cast<uint32_t>(node));
  }
  for (; order_.size() > most_; order_.pop_front()) nodes_.erase(order_.front());
}

size_t PrefixMemory::known(std::span<const uint64_t> digests, size_t node) const {
  std::lock_guard lock(mutex_);
  size_t n = 0;
  for (; n < digests.size(); ++n) {
    const auto found = nodes_.find(digests[n]);
    if (found == nodes_.end() || std::ranges::find(found->second, node) == found->second.end()) break;
  }
  return n;
}

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view name) {
  const auto found = std::ranges::find(kRoutes, name, &Route::name);
  return found == std::end(kRoutes) ? nullptr : found;
}

}  // namespace millrace
