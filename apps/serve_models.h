// The models of `millrace serve`, from flags, a file and a folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model_flags.h"
#include "prompt_flags.h"
#include "server/models/model_registry.h"

namespace millrace {

struct ServeModels {
  std::vector<std::string> models;         // [NAME=]PATH
  std::vector<std::string> words;          // MODEL without a flag, [NAME=]PATH
  std::vector<std::string> aliases;        // aliases of the first model
  std::vector<std::string> named_aliases;  // NAME=ALIAS
  std::string name, folder, file, pooling, ranker;
  PromptFlags compression;  // for models without their own
  double idle_seconds = -1;
  bool on_demand = false, any_name = false;
  bool yes = false;                      // download a MODEL without asking
  bool store = false, no_store = false;  // default: with one if no model is named
  bool flag_given = false;               // -m is on the command line

  // Replaces the -m added by ModelFlags.
  void add_to(CLI::App* command);
  // Appends the words to `models`, and offers the download of those that are not on this machine. If -m is not on the
  // command line, words replace the models of the config file. Errors: as offer_model.
  Result<void> place_words();
  // Returns the command that chats with the first model in a terminal; "": the first model is of a folder or file.
  std::string chat_command() const;
  // Creates the registry and loads the models to be preloaded. The flags are the defaults of every model.
  Result<std::unique_ptr<ModelRegistry>> make(const ModelFlags& model, const EngineFlags& engine,
                                              const SamplingFlags& sampling) const;

 private:
  bool with_store() const { return store || (!no_store && models.empty() && file.empty() && folder.empty()); }
  Result<std::vector<ModelConfig>> configs(const ModelConfig& defaults) const;
};

// Reads models from a TOML file with one table per model:
//
//   [fast]
//   path = "small.gguf"
//   alias = ["gpt-4o-mini", "gpt-4o"]
//   preload = true
//   idle-unload = 600
//   context = 4096           # and any other flag of a model or an engine
//
// Errors: user, with the name of the table.
Result<std::vector<ModelConfig>> read_models_file(const std::string& path, const ModelConfig& defaults);

}  // namespace millrace
