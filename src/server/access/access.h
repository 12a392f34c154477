// Access: authenticates requests by API key and says which role an endpoint requires. Keys can be replaced while
// requests run; a key name that remains keeps its account. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "server/access/key_account.h"
#include "server/api/endpoint.h"
#include "server/http/http.h"

namespace millrace {

// The key that the HTTP layer has read; for a request that did not arrive over HTTP, the one in its headers.
GivenKey given_key(const HttpRequest& request);

enum class Role { none, user, admin };

class Access {
 public:
  explicit Access(std::vector<ApiKey> keys) { replace(std::move(keys)); }

  void replace(std::vector<ApiKey> keys);
  bool open() const;  // there are no keys: everything is allowed
  // The account of the request's key; null: no key, or an unknown one.
  std::shared_ptr<KeyAccount> find(const HttpRequest& request) const;
  std::shared_ptr<KeyAccount> named(const std::string& name) const;  // null: no current key has this name
  std::vector<KeyUsage> usage() const;                               // sorted by name

 private:
  struct Entry {
    KeyDigest digest;
    std::shared_ptr<KeyAccount> account;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts_;  // by name, including removed keys
};

// Returns the role that a server with keys requires for an endpoint: admin for endpoints that change the server or show
// other clients' requests. `endpoint`: null for an unknown path. `metrics`: the role for /metrics.
Role needed_role(const Endpoint* endpoint, Role metrics);

}  // namespace millrace
