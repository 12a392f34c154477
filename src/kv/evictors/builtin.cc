// The prefix evictors; the first one is the default.
#include "kv/evictors/records.h"

namespace millrace {

const Registry<const PrefixEvictor*>& prefix_evictors() {
  static const Registry<const PrefixEvictor*> registry("prefix_evictor",
                                                       {.loss = Loss::lossless, .test = "src/kv/prefix_tree_test.cc"},
                                                       {&kLru, &kLfu, &kLengthAware, &kImportance});
  return registry;
}

const PrefixEvictor* find_prefix_evictor(std::string_view name) {
  const auto* entry = prefix_evictors().find(name);
  return entry ? entry->member : nullptr;
}

}  // namespace millrace
