#include "server/generation/response_store.h"

namespace millrace {

void ResponseStore::drop(std::unordered_map<std::string, Entry>::iterator entry) {
  const auto tenant = tenants_.find(entry->second.tenant);
  tenant->second.bytes -= entry->second.bytes();
  tenant->second.uses.erase(entry->second.use);
  if (tenant->second.uses.empty()) tenants_.erase(tenant);
  bytes_ -= entry->second.bytes();
  entries_.erase(entry);
}

// Drops a response of the tenant that has the most bytes or responses; among equal tenants, the least recently used.
void ResponseStore::drop_one(bool by_bytes) {
  auto victim = entries_.end();
  int64_t most = -1;
  for (const auto& [name, tenant] : tenants_) {
    const int64_t held = by_bytes ? tenant.bytes : tenant.count();
    if (held < most) continue;
    const auto last = entries_.find(tenant.uses.back());
    if (held == most && last->second.used > victim->second.used) continue;
    victim = last;
    most = held;
  }
  drop(victim);
}

void ResponseStore::put(const std::string& tenant, const std::string& id, StoredResponse response) {
  Entry entry{to_text(response.response),
              to_text(response.messages),
              to_text(response.input),
              to_text(response.deltas),
              tenant,
              {},
              0};
  std::lock_guard lock(mutex_);
  if (!keeps() || entry.bytes() > most_bytes_) return;
  if (auto found = entries_.find(id); found != entries_.end()) drop(found);
  Tenant& its = tenants_[tenant];
  its.uses.push_front(id);
  its.bytes += entry.bytes();
  entry.use = its.uses.begin();
  entry.used = ++uses_;
  bytes_ += entry.bytes();
  entries_.emplace(id, std::move(entry));
  while (bytes_ > most_bytes_) drop_one(true);
  while (static_cast<int64_t>(entries_.size()) > most_) drop_one(false);
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) {
  std::string response, messages, input, deltas;
  {
    std::lock_guard lock(mutex_);
    auto found = entries_.find(id);
    if (found == entries_.end()) return std::nullopt;
    auto& uses = tenants_.at(found->second.tenant).uses;
    uses.splice(uses.begin(), uses, found->second.use);
    found->second.used = ++uses_;
    response = found->second.response;
    messages = found->second.messages;
    input = found->second.input;
    deltas = found->second.deltas;
  }
  const auto parsed = [](const std::string& text) { return parse_json(text, kMaxOwnJsonDepth); };
  return StoredResponse{parsed(response), parsed(messages), parsed(input), parsed(deltas)};
}

bool ResponseStore::erase(const std::string& id) {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  drop(found);
  return true;
}

int64_t ResponseStore::count() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

int64_t ResponseStore::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace millrace
