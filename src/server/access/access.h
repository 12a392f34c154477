// Access: whose request it is, and what he may do. Keys can be replaced while requests run: the account of a name that
// stays goes on. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "server/access/key_account.h"
#include "server/api/endpoint.h"
#include "server/http/http.h"

namespace millrace {

enum class Role { nobody, user, admin };

class Access {
 public:
  explicit Access(std::vector<ApiKey> keys) { replace(std::move(keys)); }

  void replace(std::vector<ApiKey> keys);
  bool open() const;  // there are no keys: everybody may do everything
  // The account of the key that the request brings; null: it brings none, or none that is known.
  std::shared_ptr<KeyAccount> find(const HttpRequest& request) const;
  std::shared_ptr<KeyAccount> named(const std::string& name) const;  // of a key that there is; null: there is none
  std::vector<KeyUsage> usage() const;                               // in the order of names

 private:
  struct Entry {
    KeyDigest digest;
    std::shared_ptr<KeyAccount> account;
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::map<std::string, std::shared_ptr<KeyAccount>> accounts_;  // of names that were there once, too
};

// Who may ask this of a server with keys: what changes the server, or shows others' work, is for admins. A null
// endpoint is a path that there is not. `metrics` says who may read them.
Role needed_role(const Endpoint* endpoint, Role metrics);

}  // namespace millrace
