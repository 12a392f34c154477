// PrefixScopes: decides which requests share prefixes. Requests of one tenant share only with each other. Requests that
// name the same prefix group share only with each other, across tenants. Keys and values computed with adapters are
// shared with requests that use the same adapters, and those computed from given rows with requests that have the same
// rows. Blocks of streams that leave the model early lack the keys and values of its last layers, and are shared with
// requests that store as many layers. Each scope is a number in the prefix index's keys: a hash of its name, so it is
// the same after a restart. Collisions are resolved here, so that no name can be constructed that reads the prefixes of
// another. With very many names the oldest is evicted, so callers pass client-chosen names as digests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

namespace millrace {

class PrefixScopes {
 public:
  static constexpr size_t kMaxNames = 65536;

  // `layers`: that the streams store; 0: all. Returns 0 without tenant, group, adapters, embeddings and layers.
  uint64_t of(const std::string& tenant, const std::string& group, const std::string& adapters = "",
              const std::string& embeddings = "", int64_t layers = 0) {
    if (tenant.empty() && group.empty() && adapters.empty() && embeddings.empty() && layers == 0) return 0;
    std::string name = group.empty() ? "t" + tenant : "g" + group;
    if (!adapters.empty()) name = fmt::format("a{} {}{}", adapters.size(), adapters, name);
    if (!embeddings.empty()) name = fmt::format("e{} {}{}", embeddings.size(), embeddings, name);
    if (layers > 0) name = fmt::format("l{} {}", layers, name);
    uint64_t scope = hash(name);
    for (;; ++scope) {
      if (scope == 0) continue;
      const auto found = names_.find(scope);
      if (found == names_.end()) break;
      if (found->second == name) return scope;
    }
    if (names_.size() >= kMaxNames) {
      names_.erase(oldest_.front());
      oldest_.pop_front();
    }
    names_.emplace(scope, name);
    oldest_.push_back(scope);
    return scope;
  }

  size_t size() const { return names_.size(); }

 private:
  static uint64_t hash(const std::string& name) {  // FNV-1a; frozen: persistent stores contain it
    uint64_t value = 0xcbf29ce484222325u;
    for (char c : name) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    return value;
  }

  std::unordered_map<uint64_t, std::string> names_;
  std::deque<uint64_t> oldest_;  // first
};

}  // namespace millrace
