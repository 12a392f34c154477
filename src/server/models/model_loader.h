// Loads one of the server's models, weights and engine, within the memory budget shared by all models.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "server/models/model_defaults.h"
#include "server/models/served_model.h"

namespace millrace {

struct ModelConfig {
  std::string name;  // reported in answers
  std::vector<std::string> aliases;
  std::string path;  // for LanguageModel::load
  LoadOptions load;
  EngineOptions engine;
  double idle_seconds = -1;                     // unloaded after this time without a request; negative: never
  std::optional<Pooling> pooling;               // for embeddings; the model's own when absent
  bool preload = false;                         // load at startup
  std::vector<std::string> prompt_passes = {};  // prompt compressors, NAME:key=value,...
  // Default sampling options of requests, from `defaults` and the server's flags; null: the engine's with `defaults`.
  std::function<Result<SamplingOptions>(const LanguageModel&, const ModelDefaults&)> sampling = nullptr;
  bool found = false;  // found in the models folder, not configured
  // For models of the store:
  bool stored = false;
  int64_t stamp = 0;  // when the description was written
  ModelDefaults defaults;
  std::string system;           // system prompt of conversations without one
  bool apply_adapters = false;  // to requests that name none
};

// Unloads one unused model to free its memory; returns whether there was one.
using FreeMemory = std::function<bool()>;

// `shared`, `answers`: of a budget that several models share; null without one. A model with its own budget also has
// its own memory for answers. Errors: as LanguageModel::load and Engine::create, prefixed with the model's name.
Result<std::shared_ptr<ServedModel>> load_served_model(const ModelConfig& config,
                                                       const std::shared_ptr<MemoryAccounts>& shared,
                                                       const FreeMemory& free_memory,
                                                       const std::shared_ptr<AnswerMemory>& answers = nullptr);

// The files that contain a model's weights, sorted.
std::vector<std::filesystem::path> model_file_paths(const std::string& path);
// Total size of the model's files; 0 if unknown.
int64_t model_file_bytes(const std::string& path);

// The models in a folder: GGUF files (the first part of split ones) and Hugging Face folders. The name is that of the
// file without .gguf, or of the folder. Sorted by name.
std::vector<ModelConfig> find_models(const std::string& folder);

}  // namespace millrace
