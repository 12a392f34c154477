#include "server/models/stored_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/models/model_defaults.h"

namespace millrace {

Result<ModelConfig> stored_model_config(const StoredModel& model, const ModelConfig& defaults) {
  ModelConfig out = defaults;
  MILLRACE_TRY(out.defaults, model_defaults(model.about.parameters));
  if (out.defaults.ranker.empty()) out.defaults.ranker = defaults.defaults.ranker;
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
  // Only in place of the server's own choice; --drafter takes precedence.
  if (!model.about.draft.empty() && out.engine.drafter_if_possible)
    out.engine.drafter = "draft:model=" + model.about.draft;
  return out;
}

namespace {

// Returns true if the text is the path of a file or folder, and no model has it as its name.
bool names_file(const ModelStore& store, const std::string& text) {
  std::error_code ignored;
  return !find_embedded_model(text) && !store.find(text) && std::filesystem::exists(text, ignored);
}

// Chooses one of several FROM lines as about.from, and notes what the other ones are.
Result<void> choose_base(const ModelStore& store, Modelfile& about) {
  std::vector<std::string> all = {about.from};
  all.insert(all.end(), about.more_from.begin(), about.more_from.end());
  about.more_from.clear();
  const auto note = [&](const std::string& from, const std::string& why) {
    about.notes.push_back(fmt::format("FROM {}: left out: {}", from, why));
  };
  const auto name =
      std::find_if_not(all.rbegin(), all.rend(), [&](const std::string& from) { return names_file(store, from); });
  if (name != all.rend()) {
    about.from = *name;
    for (const std::string& one : all)
      if (one != about.from) note(one, fmt::format("the base is {}, the last name", about.from));
    return {};
  }
  std::vector<std::string> models;
  for (const std::string& one : all) {
    MILLRACE_TRY(const ModelFiles files, open_model(one));
    if (files.architecture == "clip") {
      note(one, "it holds the part of a model that reads pictures, which is not supported");
    } else {
      models.push_back(one);
    }
  }
  if (models.empty()) return Error::user(fmt::format("FROM {}: holds no language model", all.front()));
  about.from = models.front();
  const std::vector<std::string> parts = files_of_model(about.from);
  for (const std::string& one : models) {
    std::error_code ignored;
    const auto same = [&](const std::string& part) { return std::filesystem::equivalent(part, one, ignored); };
    if (!same(about.from) && std::ranges::none_of(parts, same))
      return Error::user(
          fmt::format("FROM {}: is not a part of the model of FROM {}; a model has one base", one, about.from));
  }
  return {};
}

// The files of the model that DRAFT names. None: it is built in.
Result<std::vector<std::string>> draft_files_of(const ModelStore& store, const std::string& draft) {
  if (names_file(store, draft)) {
    MILLRACE_TRY_VOID(open_model(draft));
    return files_of_model(draft);
  }
  if (find_embedded_model(draft)) return std::vector<std::string>();
  if (const auto stored = store.find(draft); stored && !stored->files.empty()) return stored->files;
  return Error::user(
      fmt::format("DRAFT {}: no such file, and no model on this machine with files of its own has that name", draft));
}

}  // namespace

Result<ModelRecipe> model_recipe(const ModelStore& store, Modelfile about) {
  MILLRACE_TRY_VOID(model_defaults(about.parameters));
  if (!about.more_from.empty()) MILLRACE_TRY_VOID(choose_base(store, about));
  ModelRecipe out;
  if (!about.draft.empty()) {
    MILLRACE_TRY(out.draft_files, draft_files_of(store, about.draft));
  }
  std::error_code ignored;
  const std::string from = about.from;
  for (const std::string& adapter : about.adapters)
    if (!std::filesystem::exists(adapter, ignored)) return Error::corrupt(fmt::format("{}: no such adapter", adapter));
  if (names_file(store, from)) {
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
    if (about.kept.empty()) about.kept = theirs.kept;
    if (about.draft.empty()) {
      about.draft = theirs.draft;
      out.draft_files = base->draft_files;
    }
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

Result<void> copy_model(const ModelStore& store, const std::string& from, const std::string& to) {
  if (store.find(from)) return store.copy(from, to);
  if (from.empty() || !find_embedded_model(from))
    return Error::user(fmt::format("{}: no such model on this machine", from.substr(0, 200)));
  return store.create(to, {.files = {}, .built_in = from, .about = {.from = from}});
}

}  // namespace millrace
