// millrace list, show, cp, rm and create: the models on this machine by name (hub/model_store.h).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "arguments.h"
#include "base/ordered_json.h"
#include "command.h"
#include "hub/short_names.h"
#include "hub_model.h"
#include "input.h"
#include "models/arch.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "server/models/model_facts.h"
#include "server/models/stored_models.h"
#include "table_room.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr const char* kListExamples = R"(Examples:
  millrace list          names, sizes and last uses; any command that takes -m takes these names
  millrace list --json

Lists what `millrace create` and `millrace cp` made, and what is in the cache shared with Hugging Face's tools.
`millrace models` lists the models in the program itself, `millrace ps` what a server has loaded.)";
constexpr const char* kShowExamples = R"(Examples:
  millrace show my-model               architecture, format, context, parameters, system prompt
  millrace show my-model --modelfile   a file that millrace create reads)";
constexpr const char* kCopyExamples = R"(Examples:
  millrace cp Qwen/Qwen3-0.6B-GGUF:Q8_0 small   a short name; the files are shared, not copied)";
constexpr const char* kRemoveExamples = R"(Examples:
  millrace rm small                       deletes the name, and its files unless another name uses them
  millrace rm Qwen/Qwen3-0.6B-GGUF:Q8_0   deletes a download)";
constexpr const char* kCreateExamples = R"(Examples:
  millrace create pirate                  reads ./Modelfile
  millrace create pirate -f pirate.txt    millrace chat -m pirate then talks with it

A Modelfile, as Ollama reads it:
  FROM ./model.gguf                       a file, a folder, or a name of millrace list or millrace models
  PARAMETER temperature 0.6               also top_k, top_p, min_p, seed, stop, num_ctx, num_predict, repeat_penalty ...
  SYSTEM You are a pirate.                text of several lines stands between """ and """
  TEMPLATE """..."""                      a chat template, in Jinja
  ADAPTER ./lora.gguf                     LoRA adapters, applied to every request
  DRAFT ./small.gguf                      a second model with the same vocabulary that drafts)";

std::string megabytes(int64_t bytes) {
  const auto n = static_cast<double>(bytes);
  return n >= 1e9 ? fmt::format("{:.1f} GB", n * 1e-9) : fmt::format("{:.1f} MB", n * 1e-6);
}

std::string ago(int64_t seconds) {
  if (seconds == 0) return "never";
  const int64_t past = static_cast<int64_t>(std::time(nullptr)) - seconds;
  const auto text = [](int64_t count, const char* unit) {
    return fmt::format("{} {}{} ago", count, unit, count == 1 ? "" : "s");
  };
  if (past < 60) return "now";
  if (past < 3600) return text(past / 60, "minute");
  if (past < 2 * 86400) return text(past / 3600, "hour");
  return text(past / 86400, "day");
}

nlohmann::ordered_json stored_json(const StoredModel& model) {
  return {{"name", model.name},        {"path", model.path},          {"bytes", model.bytes},
          {"modified", model.created}, {"last_used", model.used},     {"from", model.about.from},
          {"cached", model.cached},    {"system", model.about.system}};
}

std::vector<TableColumn> list_columns() {
  return {{.name = "NAME", .left = true},
          {.name = "SIZE", .drops = 3, .width = 10},
          {.name = "MODIFIED", .left = true, .drops = 1},
          {.name = "LAST USED", .left = true, .drops = 2}};
}

Result<int> list(bool json, bool names, bool wide) {
  const ModelStore store;
  const auto models = store.list();
  if (names) {
    for (const StoredModel& model : models) fmt::print("{}\n", model.name);
    for (const EmbeddedModel& model : embedded_models()) fmt::print("{}\n", model.short_name);
    return 0;
  }
  auto all = nlohmann::ordered_json::array();
  for (const StoredModel& model : models) all.push_back(stored_json(model));
  if (json) {
    print_json_line({{"models", all}, {"folder", store.folder().string()}});
    return 0;
  }
  if (models.empty()) {
    fmt::print("no models yet: millrace pull OWNER/NAME downloads one, millrace create NAME makes one\n");
    return 0;
  }
  TextTable table(TableLook::plain, list_columns());
  for (const StoredModel& model : models)
    table.add({model.name, megabytes(model.bytes), ago(model.created), ago(model.used)});
  fmt::print("{}", table.text(table_room(wide, "--json")));
  fmt::print("{} model{}, {}\n", models.size(), models.size() == 1 ? "" : "s", megabytes(disk_bytes(models)));
  return 0;
}

struct ShowFlags {
  std::string name;
  bool modelfile = false, json = false;
};

Error not_on_machine(const ModelStore& store, const std::string& name) {
  std::vector<std::string> names;
  for (const StoredModel& model : store.list()) names.push_back(model.name);
  if (const auto all = short_names(); all.ok() && find_short_name(name, *all))
    return Error::user(fmt::format("{0}: is not on this machine; `millrace pull {0}` downloads it", name));
  return Error::user(
      fmt::format("{}: no such model on this machine{}; `millrace list` lists them", name, suggestion(name, names)));
}

Result<int> show(const ShowFlags& flags) {
  const ModelStore store;
  auto model = store.find(flags.name);
  if (!model && find_embedded_model(flags.name))
    model = StoredModel{.name = flags.name, .path = flags.name, .about = {.from = flags.name}};
  if (!model) return not_on_machine(store, flags.name);
  if (flags.modelfile) {
    Modelfile about = model->about;
    about.from = model->path;
    fmt::print("{}", modelfile_text(about));
    return 0;
  }
  MILLRACE_TRY(const ModelFiles files, open_model(model->path));
  MILLRACE_TRY(const ArchSpec spec, read_arch_spec(files));
  nlohmann::ordered_json out = stored_json(*model);
  out["architecture"] = spec.arch;
  out["parameters"] = count_parameters(files);
  out["quantization"] = quantization_name(files);
  out["context"] = spec.context;
  out["chat_template"] = model->about.chat_template.empty() ? files.chat_template : model->about.chat_template;
  out["defaults"] = nlohmann::ordered_json::array();
  for (const auto& [name, value] : model->about.parameters)
    out["defaults"].push_back({{"name", name}, {"value", value}});
  out["adapters"] = model->about.adapters;
  out["draft"] = model->about.draft;
  if (flags.json) {
    print_json_line(out);
    return 0;
  }
  const size_t columns = terminal_columns();
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) print_fact(name, value, columns);
  };
  line("name", model->name);
  line("from", model->about.from);
  line("path", model->path);
  line("architecture", spec.arch);
  line("parameters", fmt::format("{:.1f} M", static_cast<double>(count_parameters(files)) * 1e-6));
  line("format", quantization_name(files));
  line("context", fmt::format("{} tokens", spec.context));
  line("disk", model->bytes > 0 ? megabytes(model->bytes) : "in the program");
  line("last used", model->used > 0 ? ago(model->used) : "");
  line("chat template", out["chat_template"].get<std::string>().empty() ? "none: chat continues your text"
                        : model->about.chat_template.empty()            ? "the files' own"
                                                                        : "of the Modelfile");
  for (const auto& [name, value] : model->about.parameters) line("default", name + " " + value);
  for (const std::string& adapter : model->about.adapters) line("adapter", adapter);
  line("draft", model->about.draft);
  line("system", model->about.system);
  return 0;
}

Result<int> remove_models(const std::vector<std::string>& names) {
  const ModelStore store;
  for (const std::string& name : names) {
    if (!store.find(name)) return not_on_machine(store, name);
    MILLRACE_TRY_VOID(store.remove(name));
    fmt::print("deleted {}\n", name);
  }
  return 0;
}

Result<void> check_new_name(const std::string& name) {
  if (find_embedded_model(name))
    return Error::user(fmt::format("{}: is the name of a built-in model; choose another name", name));
  return {};
}

Result<int> copy_name(const std::string& from, const std::string& to) {
  const ModelStore store;
  MILLRACE_TRY_VOID(check_new_name(to));
  if (!store.find(from) && !find_embedded_model(from)) return not_on_machine(store, from);
  MILLRACE_TRY_VOID(copy_model(store, from, to));
  fmt::print("{} is now also {}\n", from, canonical_model_name(to));
  return 0;
}

// Returns true if FROM or DRAFT of a Modelfile names a model. A file or folder with the name of a model is written as a
// path: ./lab.
bool names_model(const ModelStore& store, const std::string& text) {
  return text.empty() || (!looks_like_path(text) && (find_embedded_model(text) || store.find(text)));
}

// Paths in a Modelfile are relative to its folder.
std::string beside(const std::filesystem::path& file, const std::string& path) {
  std::error_code ignored;
  const auto near = file.parent_path() / at_home(path);
  return std::filesystem::exists(near, ignored) ? std::filesystem::absolute(near, ignored).string() : path;
}

Result<int> create(const std::string& name, const std::string& file) {
  MILLRACE_TRY_VOID(check_new_name(name));
  MILLRACE_TRY(const std::string text, read_text_file(file));
  MILLRACE_TRY(Modelfile about, parse_modelfile(text));
  for (std::string& adapter : about.adapters) adapter = beside(file, adapter);
  const ModelStore store;
  std::vector<std::string*> models = {&about.from, &about.draft};
  for (std::string& more : about.more_from) models.push_back(&more);
  for (std::string* one : models)
    if (names_hub(*one)) {
      MILLRACE_TRY(*one, local_model(*one));
    } else if (!names_model(store, *one)) {
      *one = beside(file, *one);
    }
  const auto notes = about.notes;  // printed also where the rest fails
  for (const std::string& note : notes) fmt::print(stderr, "millrace: note: {}: {}\n", file, note);
  about.notes.clear();
  MILLRACE_TRY(const ModelRecipe recipe, model_recipe(store, std::move(about)));
  for (const std::string& note : recipe.about.notes) fmt::print(stderr, "millrace: note: {}: {}\n", file, note);
  MILLRACE_TRY_VOID(store.create(name, recipe));
  fmt::print("created {0}; millrace run {0}\n", canonical_model_name(name));
  return 0;
}

}  // namespace

void add_stored_commands(CLI::App& app) {
  auto json = std::make_shared<bool>(false), only_names = std::make_shared<bool>(false);
  auto wide = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "list", "List the models on this machine", kListExamples,
                                  [=] { return list(*json, *only_names, *wide); });
  command->alias("ls");
  command->add_flag("--json", *json, "Print {\"models\":[...]}");
  command->add_flag("--names", *only_names, "Print names only, also those of built-in models");
  add_wide_to(command, wide.get(), list_columns());

  auto shown = std::make_shared<ShowFlags>();
  command = add_command(app, "show", "Describe a model on this machine", kShowExamples, [=] { return show(*shown); });
  command->add_option("name", shown->name, "A name of millrace list")->required();
  command->add_flag("--modelfile", shown->modelfile, "Print it as a Modelfile");
  command->add_flag("--json", shown->json, "Print one JSON object");

  auto created = std::make_shared<std::pair<std::string, std::string>>("", "Modelfile");
  command = add_command(app, "create", "Make a model from a Modelfile", kCreateExamples,
                        [=] { return create(created->first, created->second); });
  command->add_option("name", created->first, "Its name: NAME or NAME:TAG")->required();
  command->add_option("-f,--file", created->second, "The Modelfile; -: standard input")->capture_default_str();

  auto names = std::make_shared<std::pair<std::string, std::string>>();
  command = add_command(app, "cp", "Give a model a second name", kCopyExamples,
                        [=] { return copy_name(names->first, names->second); });
  command->add_option("from", names->first, "A name of millrace list or millrace models")->required();
  command->add_option("to", names->second, "The second name")->required();

  auto gone = std::make_shared<std::vector<std::string>>();
  command =
      add_command(app, "rm", "Delete models from this machine", kRemoveExamples, [=] { return remove_models(*gone); });
  command->add_option("name", *gone, "Names of millrace list")->required();
}

}  // namespace millrace
