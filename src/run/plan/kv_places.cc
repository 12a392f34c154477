#include "run/plan/kv_places.h"

#include <fmt/format.h>

namespace millrace {

std::string memory_tier(int64_t tokens) { return tokens == 0 ? "" : fmt::format("memory:tokens={}", tokens); }

std::string SsdStoreFlags::text() const {
  if (path.empty()) return "";
  std::string out = fmt::format("ssd:path={},size={},order={}", escape_option(path), size, escape_option(order));
  if (fetch != 1) out += fmt::format(",fetch={}", fetch);
  return out;
}

Result<ChosenTier> choose_tier(const std::string& text) { return choose_member("KV tier", kv_tiers(), text); }

Result<ChosenStore> choose_store(const std::string& text) {
  MILLRACE_TRY(ChosenStore store, choose_member("KV store", kv_stores(), text));
  if (fetched_fraction(store) < 1 && !by_importance(store))
    return Error::user("KV store: to fetch a part of a prompt its blocks must be in order of importance");
  return store;
}

}  // namespace millrace
