#include "server/access/access.h"

#include <algorithm>
#include <string_view>

namespace millrace {
namespace {

// Endpoints that are for operators on other servers. They require the role admin here even if an Endpoint does not say
// so.
constexpr std::pair<std::string_view, std::string_view> kAdminOnly[] = {
    {"GET", "/slots"},
    {"POST", "/slots/*"},
    {"POST", "/props"},
    {"POST", "/lora-adapters"},
    {"POST", "/v1/load_lora_adapter"},
    {"POST", "/v1/unload_lora_adapter"},
    {"POST", "/models/load"},
    {"POST", "/models/unload"},
    {"DELETE", "/v1/models/*"},
    {"POST", "/api/pull"},
    {"POST", "/api/push"},
    {"POST", "/api/create"},
    {"POST", "/api/copy"},
    {"DELETE", "/api/delete"},
};

}  // namespace

GivenKey read_given_key(std::string_view authorization, std::string_view api_key) {
  const bool bearer =
      authorization.size() > 7 && (authorization.starts_with("Bearer ") || authorization.starts_with("bearer "));
  const std::string_view key = bearer ? authorization.substr(7) : api_key;
  if (!key.empty()) return {.key = key_digest(key), .other = {}};
  if (!authorization.empty()) return {.key = {}, .other = key_digest(authorization)};
  return {};
}

GivenKey given_key(const HttpRequest& request) {
  return request.given ? *request.given : read_given_key(request.header("authorization"), request.header("x-api-key"));
}

void Access::replace(std::vector<ApiKey> keys) {
  std::lock_guard lock(mutex_);
  entries_.clear();
  for (ApiKey& key : keys) {
    auto& account = accounts_[key.name];
    const KeyDigest digest = key.digest;
    if (account) {
      account->change(std::move(key));
    } else {
      account = std::make_shared<KeyAccount>(std::move(key));
    }
    entries_.push_back({digest, account});
  }
}

bool Access::open() const {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

std::shared_ptr<KeyAccount> Access::find(const HttpRequest& request) const {
  const auto digest = given_key(request).key;
  if (!digest) return nullptr;
  std::lock_guard lock(mutex_);
  const Entry* found = nullptr;
  for (const Entry& entry : entries_)  // no early exit, for constant time
    if (same_digest(entry.digest, *digest)) found = &entry;
  return found ? found->account : nullptr;
}

std::shared_ptr<KeyAccount> Access::named(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = accounts_.find(name);
  if (found == accounts_.end()) return nullptr;
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.account == found->second; })
             ? found->second
             : nullptr;
}

std::vector<KeyUsage> Access::usage() const {
  std::lock_guard lock(mutex_);
  std::vector<KeyUsage> out;
  for (const auto& [name, account] : accounts_) out.push_back(account->usage());
  return out;
}

Role needed_role(const Endpoint* endpoint, Role metrics) {
  if (!endpoint) return Role::user;
  if (endpoint->path == "/metrics") return metrics;
  if (endpoint->open) return Role::none;
  if (endpoint->admin) return Role::admin;
  const auto listed = [&](const auto& one) { return endpoint->method == one.first && endpoint->path == one.second; };
  return std::ranges::any_of(kAdminOnly, listed) ? Role::admin : Role::user;
}

}  // namespace millrace
