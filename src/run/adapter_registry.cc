#include "run/adapter_registry.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "run/language_model.h"

namespace millrace {
namespace {

constexpr size_t kLongestName = 256;
constexpr size_t kMaxUses = 16;  // of one request
constexpr double kMaxScale = 1e6;

}  // namespace

std::pair<std::string, std::string> named_adapter(const std::string& given) {
  const size_t equals = given.find('=');
  if (equals != std::string::npos) return {given.substr(0, equals), given.substr(equals + 1)};
  std::filesystem::path path(given);
  if (!path.has_filename()) path = path.parent_path();  // FOLDER/
  const std::string name = path.filename().string();
  for (std::string_view end : {".gguf", ".safetensors"})
    if (name.size() > end.size() && name.ends_with(end)) return {name.substr(0, name.size() - end.size()), given};
  return {name, given};
}

Result<void> AdapterRegistry::load(const std::string& name, const std::string& path) {
  if (name.empty() || name.size() > kLongestName)
    return Error::user(fmt::format("adapter: a name has 1 to {} characters", kLongestName));
  const LanguageModel::Parts& parts = model_->parts();
  if (const ArchSpec& spec = parts.model->spec(); spec.encoder)
    return Error::unsupported(
        fmt::format("adapter {}: this model is an encoder ({}), to which adapters are not applied; merge the adapter "
                    "into the model's folder",
                    name, spec.arch));
  MILLRACE_TRY(auto adapter, LoraAdapter::load(path, *parts.model, *parts.files, parts.kernels, parts.accounts));
  std::lock_guard lock(mutex_);
  if (adapters_.size() >= kMaxAdapters && !adapters_.contains(name))
    return Error::resource(fmt::format("adapters: {} are loaded already; unload one", adapters_.size()));
  adapters_[name] = std::move(adapter);
  return {};
}

bool AdapterRegistry::unload(const std::string& name) {
  std::lock_guard lock(mutex_);
  return adapters_.erase(name) > 0;
}

std::vector<AdapterInfo> AdapterRegistry::list() const {
  std::lock_guard lock(mutex_);
  std::vector<AdapterInfo> out;
  for (const auto& [name, adapter] : adapters_)
    out.push_back({name, adapter->path(), adapter->rank(), adapter->matrices(), adapter->bytes()});
  return out;
}

Result<LoraMix> AdapterRegistry::find(const std::vector<AdapterUse>& uses) const {
  LoraMix mix;
  if (uses.size() > kMaxUses)
    return Error::user(fmt::format("adapters: at most {} for one request, got {}", kMaxUses, uses.size()));
  std::lock_guard lock(mutex_);
  for (const AdapterUse& use : uses) {
    const auto found = adapters_.find(use.name);
    if (found == adapters_.end()) {
      std::string known;
      for (const auto& [name, adapter] : adapters_) known += (known.empty() ? "" : ", ") + name;
      return Error::user(
          fmt::format("adapter '{}': is not loaded; there {}", use.name, known.empty() ? "is none" : "are: " + known));
    }
    if (!(std::abs(use.scale) <= kMaxScale))
      return Error::user(fmt::format("adapter '{}': scale must be between -{} and {}", use.name, kMaxScale, kMaxScale));
    if (use.scale != 0) mix.push_back({found->second, static_cast<float>(use.scale)});
  }
  return mix;
}

std::string adapter_identity(const LoraMix& mix) {
  std::string text;
  for (const LoraUse& use : mix) text += fmt::format("{}*{};", use.adapter->identity(), use.scale);
  return text;
}

}  // namespace millrace
