// Models of the store (hub/model_store.h) as a server serves them.
#pragma once

#include <string>

#include "hub/model_store.h"
#include "server/models/model_loader.h"

namespace millrace {

// `defaults`: settings that the description does not make. Errors: user (its parameters).
Result<ModelConfig> stored_model_config(const StoredModel& model, const ModelConfig& defaults);

// Finds the files that `from` and `draft` name, for ModelStore::create: a built-in model, a model of the store or the
// cache, or a file or folder, in this order. A file with the name of a model is written with its folder, as ./lab is.
// Several `from` are, as in Ollama, the files of one model. If one of them is a name, the last name is the base.
// Settings without effect are noted. Fills in the settings that `about` leaves to its base. Errors: user (nothing has
// that name; files of two models), and as open_model.
Result<ModelRecipe> model_recipe(const ModelStore& store, Modelfile about);

// Gives a model of the store or the cache, or a built-in one, a second name. Errors: user (no such model, an invalid
// new name), resource.
Result<void> copy_model(const ModelStore& store, const std::string& from, const std::string& to);

}  // namespace millrace
