// Tenants do not see each other's prefixes: what separates their chains of blocks (kv/prefix_key.h).
#pragma once

#include <cstdint>

#include "millrace/request.h"

namespace millrace {

// FNV-1a; "" is 0. On disk as part of keys: frozen with the prefix store's version.
inline uint64_t tenant_salt(const Request& request) {
  if (request.tenant.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : request.tenant) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace millrace
