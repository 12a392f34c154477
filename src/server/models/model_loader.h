// Loads one of the models that a server has: weights, and an engine over them, within the budget that all of them
// share.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "server/models/served_model.h"

namespace millrace {

struct ModelConfig {
  std::string name;  // its own; the one that answers tell
  std::vector<std::string> aliases;
  std::string path;  // as LanguageModel::load takes it
  LoadOptions load;
  EngineOptions engine;
  double idle_seconds = -1;        // unloaded after so long without a request; negative: never
  std::optional<Pooling> pooling;  // of embeddings; the model's own when absent
  bool preload = false;            // at the server's start
  // Where a request to it says nothing; null: the engine's defaults.
  std::function<Result<SamplingOptions>(const LanguageModel&)> sampling = nullptr;
  bool found = false;  // in the folder of models, not configured
};

// What of the memory of others can be had: frees one model that nobody uses, and tells whether there was one.
using FreeMemory = std::function<bool()>;

// Without a budget `shared` is null. Errors: LanguageModel::load's and Engine::create's, with the model named first.
Result<std::shared_ptr<ServedModel>> load_served_model(const ModelConfig& config,
                                                       const std::shared_ptr<MemoryAccounts>& shared,
                                                       const FreeMemory& free_memory);

// The files that a model's weights are in, sorted.
std::vector<std::filesystem::path> model_file_paths(const std::string& path);
// Bytes of the model's files; 0 where that cannot be told.
int64_t model_file_bytes(const std::string& path);

// The models in a folder: GGUF files, of those in several parts the first, and Hugging Face folders. Named as the file
// without .gguf, or the folder. Sorted by name.
std::vector<ModelConfig> find_models(const std::string& folder);

}  // namespace millrace
