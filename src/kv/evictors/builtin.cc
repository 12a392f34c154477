// The prefix evictors; the first one is the default.
#include "kv/evictors/records.h"

namespace millrace {

std::span<const PrefixEvictor* const> prefix_evictors() {
  static constexpr const PrefixEvictor* kEvictors[] = {&kLru, &kLfu, &kLengthAware, &kImportance};
  return kEvictors;
}

const PrefixEvictor* find_prefix_evictor(std::string_view name) {
  for (const PrefixEvictor* evictor : prefix_evictors())
    if (evictor->name == name) return evictor;
  return nullptr;
}

}  // namespace millrace
