// Fuzzes API key files: any bytes are a list of keys within their bounds, or a user error.
#include "server/access/api_keys.h"

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto keys = parse_api_keys({reinterpret_cast<const char*>(data), size}, "keys");
  if (!keys.ok()) {
    if (keys.error().kind != ErrorKind::user || keys.error().message.empty()) std::abort();
    return 0;
  }
  std::set<std::string> names;
  for (const ApiKey& key : *keys) {
    if (key.name.empty() || key.name.size() > 64 || !names.insert(key.name).second) std::abort();
    if (!(key.weight >= 1e-3 && key.weight <= 1e6)) std::abort();
    for (int64_t limit : {key.limits.requests_per_minute, key.limits.tokens_per_minute, key.limits.tokens_per_day,
                          key.limits.tokens_total, key.limits.streams})
      if (limit < 0) std::abort();
  }
  return 0;
}
