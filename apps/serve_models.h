// Which models `millrace serve` has: flags, a file, a folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model_flags.h"
#include "server/models/model_registry.h"

namespace millrace {

struct ServeModels {
  std::vector<std::string> models;         // [NAME=]PATH
  std::vector<std::string> aliases;        // of the first one
  std::vector<std::string> named_aliases;  // NAME=ALIAS
  std::string name, folder, file, pooling;
  double idle_seconds = -1;
  bool on_demand = false, any_name = false;

  // Takes the place of the -m that `model` has added.
  void add_to(CLI::App* command);
  // Loads those that are to be there from the beginning. The flags are the defaults of every model.
  Result<std::unique_ptr<ModelRegistry>> make(const ModelFlags& model, const EngineFlags& engine,
                                              const SamplingFlags& sampling) const;

 private:
  Result<std::vector<ModelConfig>> configs(const ModelConfig& defaults) const;
};

// The models that a TOML file names, a table each:
//
//   [fast]
//   path = "small.gguf"
//   alias = ["gpt-4o-mini", "gpt-4o"]
//   preload = true
//   idle-unload = 600
//   context = 4096           # and every other flag of a model or an engine
//
// Errors: user, naming the table.
Result<std::vector<ModelConfig>> read_models_file(const std::string& path, const ModelConfig& defaults);

}  // namespace millrace
