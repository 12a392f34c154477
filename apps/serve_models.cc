#include "serve_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "durations.h"
#include "hub_model.h"
#include "model_words.h"
#include "models/arch.h"
#include "progress.h"
#include "prompt/rank_recipes.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "sampling/schema.h"
#include "server/models/stored_models.h"

namespace millrace {
namespace {

std::string stem_of(const std::string& path) {
  const std::filesystem::path file(path);
  return std::filesystem::is_directory(file) ? (file.has_filename() ? file : file.parent_path()).filename().string()
                                             : file.stem().string();
}

// The model's name in its files.
Result<std::string> own_name(const std::string& path) {
  MILLRACE_TRY(const ModelFiles files, open_model(path));
  MILLRACE_TRY(const ArchSpec spec, read_arch_spec(files));
  return !spec.name.empty() ? spec.name : stem_of(files.path);
}

// The name of a model in answers, which depends on the words of -m alone and not on the other models. `path`: of
// find_local_model(given). Errors: those of open_model, where the path says no name.
Result<std::string> served_name(const std::string& given, const std::string& path) {
  if (const EmbeddedModel* model = find_embedded_model(path)) return std::string(model->short_name);
  if (path != given) return canonical_model_name(given);  // the path in the cache contains a commit hash
  std::string stem = stem_of(path);
  if (stem.empty() || is_hash(stem)) return own_name(path);  // a folder of the cache
  return stem;
}

// Splits "fast=small.gguf" into name and path. A '=' after a '/' is part of the path.
std::pair<std::string, std::string> split_name(const std::string& text) {
  const size_t equals = text.find('='), slash = text.find('/');
  if (equals == std::string::npos || equals == 0 || slash < equals) return {"", text};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// A progress bar for loading a model.
std::function<void(double)> bar_of(const std::string& name) {
  auto bar = std::make_shared<std::unique_ptr<ProgressBar>>();
  return [bar, name](double fraction) {
    if (!*bar) *bar = std::make_unique<ProgressBar>("loading " + name);
    (*bar)->update(fraction);
    if (fraction >= 1) bar->reset();
  };
}

struct TableFlags {
  ModelFlags model;
  EngineFlags engine;
  std::vector<std::string> aliases;
  PromptFlags compression;
  double idle_seconds = -1;
  bool preload = false;
  std::string ranker;
};

void add_ranker_to(CLI::App* command, std::string& ranker) {
  std::string listed = rank_recipe_names();  // "a, b"
  std::erase(listed, ' ');
  command
      ->add_option("--ranker", ranker,
                   "Rank documents with a model that has no ranking head, by the logits of two words. qwen3: "
                   "Qwen3-Reranker as it is published")
      ->check(CLI::Validator(
          [](const std::string& name) {
            return name.empty() || find_rank_recipe(name)
                       ? std::string()
                       : fmt::format("unknown '{}'; available: {}", name, rank_recipe_names());
          },
          "{" + listed + "}"));
}

// A word for a shell, in quotes if it has characters that a shell may change.
std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_./:@-").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, plain)) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Result<ModelConfig> read_table(const std::string& name, const std::vector<const CLI::ConfigItem*>& items,
                               const ModelConfig& defaults) {
  TableFlags flags;
  flags.engine.options = defaults.engine;
  flags.engine.no_prefix_cache = !defaults.engine.prefix_cache;
  flags.model.threads = defaults.engine.threads;
  flags.model.context = static_cast<int>(defaults.engine.context);
  flags.idle_seconds = defaults.idle_seconds;
  CLI::App app;
  app.set_help_flag();
  flags.model.add_to(&app);
  flags.model.add_pack_to(&app);
  flags.model.pack = defaults.load.pack_in_background ? "background" : "load";
  flags.engine.add_to(&app);
  flags.engine.add_adapters_to(&app, "");
  flags.compression.add_to(&app);
  flags.ranker = defaults.defaults.ranker;
  add_ranker_to(&app, flags.ranker);
  app.remove_option(app.get_option("--memory"));
  app.add_option("--path", flags.model.path)->required();
  app.add_option("--alias", flags.aliases);
  app.add_option("--idle-unload", flags.idle_seconds)->transform(as_seconds());
  app.add_flag("--preload", flags.preload);
  app.add_option("--max-streams", flags.engine.options.max_streams)->check(CLI::Range(1, 65536));
  app.add_option("--queue", flags.engine.options.queue)->check(CLI::Range(0, 1 << 24));
  std::vector<std::string> arguments;
  for (const CLI::ConfigItem* item : items)
    for (const std::string& input : item->inputs) arguments.push_back("--" + item->name + "=" + input);
  std::ranges::reverse(arguments);  // CLI11 expects reverse order
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return Error::user(fmt::format("[{}]: {}", name, error.what()));
  }
  ModelConfig config = defaults;
  config.name = name;
  config.path = flags.model.path;
  config.aliases = flags.aliases;
  if (auto engine = flags.engine.get(flags.model); engine.ok()) {
    config.engine = std::move(*engine);
  } else {
    return Error{engine.error().kind, fmt::format("[{}]: {}", name, engine.error().message)};
  }
  MILLRACE_TRY(const auto uses, flags.engine.use.get());
  config.sampling = [uses, base = defaults.sampling](const LanguageModel& loaded,
                                                     const ModelDefaults& own) -> Result<SamplingOptions> {
    MILLRACE_TRY(SamplingOptions sampling, base(loaded, own));
    if (auto done = apply_uses(uses, sampling); !done.ok()) return done.error();
    MILLRACE_TRY_VOID(validate(sampling, loaded.info().vocab));
    return sampling;
  };
  config.load.threads = flags.model.threads;
  MILLRACE_TRY_VOID(apply_uses(uses, config.load));
  config.load.context = flags.model.context;
  config.load.packed_cache = !flags.model.packed_cache.empty() && flags.model.packed_cache != "false";
  if (config.load.packed_cache && flags.model.packed_cache != "true")
    config.load.packed_cache_path = flags.model.packed_cache;
  config.load.verify_packed_cache = flags.model.verify_packed_cache;
  config.load.pack_in_background = flags.model.pack == "background";
  config.idle_seconds = flags.idle_seconds;
  config.preload = flags.preload;
  config.defaults.ranker = flags.ranker;
  if (auto passes = flags.compression.all(flags.engine.use); passes.ok()) {
    if (!passes->empty()) config.prompt_passes = std::move(*passes);
  } else {
    return Error{passes.error().kind, fmt::format("[{}]: {}", name, passes.error().message)};
  }
  return config;
}

}  // namespace

Result<std::vector<ModelConfig>> read_models_file(const std::string& path, const ModelConfig& defaults) {
  std::ifstream file(path);
  if (!file) return Error::corrupt(fmt::format("{}: cannot be read", path));
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    return Error::user(fmt::format("{}: {}", path, error.what()));
  }
  std::vector<std::pair<std::string, std::vector<const CLI::ConfigItem*>>> tables;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // begin or end of a table
    if (item.parents.size() != 1)
      return Error::user(
          fmt::format("{}: '{}' is not in a table; each model is a table [NAME]", path, item.fullname()));
    auto found = std::ranges::find(tables, item.parents[0], [](const auto& table) { return table.first; });
    if (found == tables.end()) found = tables.insert(tables.end(), {item.parents[0], {}});
    found->second.push_back(&item);
  }
  std::vector<ModelConfig> out;
  for (const auto& [name, table] : tables) {
    auto config = read_table(name, table, defaults);
    if (!config.ok()) return Error::user(fmt::format("{}: {}", path, config.error().message));
    out.push_back(std::move(*config));
  }
  if (out.empty()) return Error::user(fmt::format("{}: contains no models", path));
  return out;
}

void ServeModels::add_to(CLI::App* command) {
  command->remove_option(command->get_option("--model"));
  command->add_option(
      "-m,--model", models,
      "[NAME=]PATH of a GGUF file, .safetensors file, Hugging Face folder, hf:OWNER/NAME[:FILE], or a name "
      "of millrace list or millrace models; repeatable. Default: the built-in one");
  command->add_option("MODEL", words,
                      "Models as for -m, or by names of millrace pull --list. If one is not on this machine, its "
                      "download is offered");
  add_yes_to(command, &yes);
  command->add_option("--models-file", file,
                      "TOML file with one table per model: path, alias, preload, idle-unload and engine flags");
  command->add_option("--models-dir", folder, "Folder of models; each is loaded at its first request");
  command->add_option(
      "--name", name,
      "Name of the first model in answers; default: its name in the binary, in the store, or of its file");
  command->add_option("--alias", aliases, "Additional name for the first model in requests; '*': any name. Repeatable");
  command->add_option("--model-alias", named_aliases, "NAME=ALIAS: additional name for the model NAME");
  command
      ->add_option("--idle-unload", idle_seconds,
                   "Unload a model after this time without a request; the next request loads it again")
      ->transform(as_seconds())
      ->check(CLI::Range(0.0, 1e9));
  command
      ->add_option("--pooling", pooling,
                   "How embeddings combine hidden states into one vector; default: the model's own")
      ->check(CLI::IsMember({"none", "mean", "cls", "last"}));
  add_ranker_to(command, ranker);
  compression.add_to(command);
  auto* with = command->add_flag("--store", store,
                                 "Also serve the models of millrace list, each loaded at its first request, and let "
                                 "clients pull, create, copy and "
                                 "delete models. Default: if no -m, --models-file or --models-dir is given");
  command->add_flag("--no-store", no_store, "Serve no models of millrace list")->excludes(with);
  command->add_flag("--load-on-demand", on_demand, "Load the models of -m at their first request too");
}

Result<void> ServeModels::place_words() {
  if (words.empty()) return {};
  if (!flag_given) models.clear();
  models.insert(models.end(), words.begin(), words.end());
  for (const std::string& word : words) MILLRACE_TRY_VOID(check_model_name(split_name(word).second));
  for (const std::string& word : words) MILLRACE_TRY_VOID(offer_model(split_name(word).second, yes));
  words.clear();
  return {};
}

std::string ServeModels::chat_command() const {
  if (models.empty()) return file.empty() && folder.empty() ? "millrace chat" : "";
  return "millrace chat " + shell_word(split_name(models.front()).second);
}

Result<std::vector<ModelConfig>> ServeModels::configs(const ModelConfig& defaults) const {
  std::vector<ModelConfig> out;
  for (const std::string& given : models) {
    ModelConfig config = defaults;
    std::tie(config.name, config.path) = split_name(given);
    config.preload = !on_demand;
    out.push_back(std::move(config));
  }
  if (!file.empty()) {
    MILLRACE_TRY(auto more, read_models_file(file, defaults));
    out.insert(out.end(), more.begin(), more.end());
  }
  if (out.empty() && folder.empty()) {  // the built-in model
    out.push_back(defaults);
    out.back().preload = !on_demand;
  }
  for (ModelConfig& config : out) {
    const std::string given = config.path;
    MILLRACE_TRY(const LocalModel local, find_local_model(given));
    config.path = local.path;
    if (local.stored) {
      StoredModel stored{.name = config.name.empty() ? canonical_model_name(given) : config.name, .path = local.path};
      stored.about = *local.stored;
      const bool preload = config.preload;
      MILLRACE_TRY(config, stored_model_config(stored, config));
      config.preload = preload;
      config.stored = false;  // stays while the server runs
    }
    if (!config.name.empty()) continue;
    if (&config == &out.front() && !name.empty()) {
      config.name = name;
    } else {
      MILLRACE_TRY(config.name, served_name(given, config.path));
    }
  }
  for (const std::string& alias : aliases) {
    if (alias != "*" && out.empty())
      return Error::user("--alias: names the first model of -m or --models-file, but there is none");
    if (alias != "*") out.front().aliases.push_back(alias);
  }
  for (const std::string& given : named_aliases) {
    const auto [of, alias] = split_name(given);
    const auto config = std::ranges::find(out, of, &ModelConfig::name);
    if (of.empty() || alias.empty() || config == out.end())
      return Error::user(fmt::format("--model-alias: expected NAME=ALIAS with the name of a model, got '{}'", given));
    config->aliases.push_back(alias);
  }
  return out;
}

Result<std::unique_ptr<ModelRegistry>> ServeModels::make(const ModelFlags& model, const EngineFlags& engine,
                                                         const SamplingFlags& sampling) const {
  ModelConfig defaults;
  MILLRACE_TRY(defaults.load, model.load_options(&engine.use));
  defaults.load.progress = nullptr;
  MILLRACE_TRY(defaults.engine, engine.get(model));
  defaults.idle_seconds = idle_seconds;
  MILLRACE_TRY(defaults.prompt_passes, compression.all(engine.use));
  defaults.pooling = find_pooling(pooling);
  defaults.defaults.ranker = ranker;
  defaults.sampling = [sampling, use = engine.use](const LanguageModel& loaded,
                                                   const ModelDefaults& own) -> Result<SamplingOptions> {
    if (auto text = loaded.encode("a"); !text.ok()) return text.error();
    return sampling.get(loaded, use, nullptr, own);
  };
  MILLRACE_TRY(std::vector<ModelConfig> list, configs(defaults));
  RegistryOptions options{.folder = folder, .any_name = std::ranges::find(aliases, "*") != aliases.end()};
  if (with_store()) options.store = std::make_shared<const ModelStore>();
  // A single model gets the whole budget, with the rest for its KV cache. Several models share it.
  if (list.size() > 1 || !folder.empty() || with_store()) {
    options.memory = std::exchange(defaults.load.memory, 0);
    for (ModelConfig& config : list) {
      config.load.memory = 0;
      if (config.load.packed_cache_path != "" && list.size() > 1 &&
          config.load.packed_cache_path == defaults.load.packed_cache_path)
        return Error::user("--packed-cache: one file cannot store several models; omit the path");
    }
  }
  options.found = defaults;
  std::error_code failed;
  if (!folder.empty() && !std::filesystem::is_directory(folder, failed))
    return Error::corrupt(fmt::format("--models-dir: {}: no such folder", folder));
  MILLRACE_TRY(auto registry, ModelRegistry::create(options));
  for (ModelConfig& config : list) {
    config.load.progress = bar_of(config.name);
    MILLRACE_TRY_VOID(registry->add(config));
  }
  MILLRACE_TRY_VOID(registry->preload());
  return registry;
}

}  // namespace millrace
