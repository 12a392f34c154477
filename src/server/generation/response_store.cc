#include "server/generation/response_store.h"

namespace millrace {

void ResponseStore::drop(std::unordered_map<std::string, Entry>::iterator entry) {
  bytes_ -= entry->second.bytes();
  uses_.erase(entry->second.use);
  entries_.erase(entry);
}

void ResponseStore::put(const std::string& id, StoredResponse response) {
  Entry entry{
      to_text(response.response), to_text(response.messages), to_text(response.input), to_text(response.deltas), {}};
  std::lock_guard lock(mutex_);
  if (!keeps() || entry.bytes() > most_bytes_) return;
  if (auto found = entries_.find(id); found != entries_.end()) drop(found);
  uses_.push_front(id);
  entry.use = uses_.begin();
  bytes_ += entry.bytes();
  entries_.emplace(id, std::move(entry));
  while (bytes_ > most_bytes_ || static_cast<int64_t>(entries_.size()) > most_) drop(entries_.find(uses_.back()));
}

std::optional<StoredResponse> ResponseStore::get(const std::string& id) {
  std::string response, messages, input, deltas;
  {
    std::lock_guard lock(mutex_);
    auto found = entries_.find(id);
    if (found == entries_.end()) return std::nullopt;
    uses_.splice(uses_.begin(), uses_, found->second.use);
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
