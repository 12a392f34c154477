// AdapterRegistry: an engine's LoRA adapters, by name. Streams hold references to the adapters that they run with, so
// unloading or replacing one does not affect them. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/engine.h"
#include "models/lora/adapter.h"

namespace millrace {

class AdapterRegistry {
 public:
  static constexpr size_t kMaxAdapters = 4096;

  explicit AdapterRegistry(std::shared_ptr<const LanguageModel> model) : model_(std::move(model)) {}

  // Replaces an adapter of the same name. Errors: as LoraAdapter::load; user (the name), resource (too many).
  Result<void> load(const std::string& name, const std::string& path);
  bool unload(const std::string& name);   // false: unknown name
  std::vector<AdapterInfo> list() const;  // by name

  // Errors: user, which lists the known names.
  Result<LoraMix> find(const std::vector<AdapterUse>& uses) const;

 private:
  std::shared_ptr<const LanguageModel> model_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const LoraAdapter>> adapters_;
};

// Identifies what the mix adds to keys and values; "" for an empty one.
std::string adapter_identity(const LoraMix& mix);

}  // namespace millrace
