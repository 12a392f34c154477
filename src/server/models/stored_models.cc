#include "server/models/stored_models.h"

#include <fmt/format.h>

#include <filesystem>

#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/models/model_defaults.h"

namespace millrace {

Result<ModelConfig> stored_model_config(const StoredModel& model, const ModelConfig& defaults) {
  ModelConfig out = defaults;
  MILLRACE_TRY(out.defaults, model_defaults(model.about.parameters));
  out.name = model.name;
  out.path = model.path;
  out.preload = false;
  out.stored = true;
  out.stamp = model.created;
  out.system = model.about.system;
  if (!model.about.chat_template.empty()) out.load.chat_template = model.about.chat_template;
  if (const int64_t context = out.defaults.context; context > 0 && out.engine.context == 0)
    out.engine.context = out.load.context = context;
  out.engine.adapters.insert(out.engine.adapters.end(), model.about.adapters.begin(), model.about.adapters.end());
  out.apply_adapters = !model.about.adapters.empty();
  return out;
}

Result<ModelRecipe> model_recipe(const ModelStore& store, Modelfile about) {
  MILLRACE_TRY_VOID(model_defaults(about.parameters));
  ModelRecipe out;
  std::error_code ignored;
  const std::string from = about.from;
  for (const std::string& adapter : about.adapters)
    if (!std::filesystem::exists(adapter, ignored)) return Error::corrupt(fmt::format("{}: no such adapter", adapter));
  if (std::filesystem::exists(from, ignored)) {
    MILLRACE_TRY_VOID(open_model(from));
    out.files = files_of_model(from);
    if (out.files.empty()) return Error::corrupt(fmt::format("{}: no model in it", from));
  } else if (find_embedded_model(from)) {
    out.built_in = from;
  } else if (const auto base = store.find(from)) {
    out.files = base->files;
    if (base->files.empty()) out.built_in = base->path;
    const Modelfile& theirs = base->about;
    if (about.chat_template.empty()) about.chat_template = theirs.chat_template;
    if (about.system.empty()) about.system = theirs.system;
    if (about.license.empty()) about.license = theirs.license;
    if (about.messages.empty()) about.messages = theirs.messages;
    about.parameters.insert(about.parameters.begin(), theirs.parameters.begin(), theirs.parameters.end());
    about.adapters.insert(about.adapters.begin(), theirs.adapters.begin(), theirs.adapters.end());
  } else {
    return Error::user(fmt::format(
        "FROM {}: no such file, and no model on this machine has that name; `millrace list` lists them, and `millrace "
        "pull` downloads one",
        from));
  }
  out.about = std::move(about);
  return out;
}

}  // namespace millrace
