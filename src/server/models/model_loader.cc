#include "server/models/model_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "run/language_model.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxDivisor = 16;             // of the part of a budget that is for answers
constexpr int64_t kDefaultKvTokens = 64 << 10;  // as for an engine without a budget

// The part number in a stem ending in "-00001-of-00003"; 0: not split.
int part_of(const std::string& stem) {
  const size_t of = stem.size() > 15 ? stem.size() - 15 : std::string::npos;
  if (of == std::string::npos || stem[of] != '-' || stem.compare(of + 6, 4, "-of-") != 0) return 0;
  const std::string digits = stem.substr(of + 1, 5);
  return std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }) ? std::stoi(digits) : 0;
}

// Without kv_tokens an engine takes all that is left of a budget. With a shared budget, it gets the default of an
// engine without a budget instead, or as much of that as fits.
Result<std::unique_ptr<Engine>> make_engine(const std::shared_ptr<const LanguageModel>& model, EngineOptions& options,
                                            bool budget) {
  if (!budget || options.kv_tokens > 0) return Engine::create(model, options);
  const int64_t context = options.context > 0 ? options.context : std::min(model->info().context, kDefaultContext);
  EngineOptions wish = options;
  wish.kv_tokens = std::max(context, std::min(options.max_streams * context, kDefaultKvTokens));
  for (;;) {
    auto made = Engine::create(model, wish);
    if (made.ok() || made.error().kind != ErrorKind::resource || wish.kv_tokens == context) return made;
    wish.kv_tokens = std::max(context, wish.kv_tokens / 2);
  }
}

// For a model with a budget of its own, or none. A KV cache of the wanted size comes first: `answers` is then less.
Result<std::unique_ptr<Engine>> make_beside_answers(const std::shared_ptr<const LanguageModel>& model,
                                                    EngineOptions& options, std::shared_ptr<AnswerMemory>& answers) {
  for (int64_t divisor = 1;; divisor *= 4) {
    answers.reset();  // releases its part
    auto part = AnswerMemory::of_budget(model->parts().accounts, divisor);
    auto made = part.ok() ? make_engine(model, options, false) : Result<std::unique_ptr<Engine>>(part.error());
    const bool limited = !part.ok() || (*part)->parts().values > 0;
    if (made.ok() || made.error().kind != ErrorKind::resource || !limited || divisor == kMaxDivisor) {
      if (part.ok()) answers = std::move(*part);
      return made;
    }
  }
}

// An engine without the drafter that it need not have.
void leave_out_drafter(EngineOptions& options, const LoadOptions& load, const std::string& name,
                       const std::string& why) {
  if (load.warn) load.warn(fmt::format("model '{}': no drafts: {}", name, why));
  options.drafter.clear();
  options.drafter_if_possible = false;
}

}  // namespace

std::vector<fs::path> model_file_paths(const std::string& path) {
  std::error_code failed;
  std::vector<fs::path> out;
  if (path.empty()) return out;
  const fs::path file(path);
  if (fs::is_directory(file, failed)) {
    for (const auto& entry : fs::directory_iterator(file, failed))
      if (entry.path().extension() == ".safetensors") out.push_back(entry.path());
  } else if (part_of(file.stem().string()) == 0) {
    out.push_back(file);
  } else {
    const std::string stem = file.stem().string(), first = stem.substr(0, stem.size() - 15),
                      last = stem.substr(stem.size() - 9);
    for (const auto& entry : fs::directory_iterator(file.has_parent_path() ? file.parent_path() : ".", failed)) {
      const std::string other = entry.path().stem().string();
      if (other.starts_with(first) && other.ends_with(last) && part_of(other) > 0) out.push_back(entry.path());
    }
  }
  std::ranges::sort(out);
  return out;
}

int64_t model_file_bytes(const std::string& path) {
  int64_t sum = 0;
  for (const fs::path& file : model_file_paths(path)) {
    std::error_code failed;
    const auto size = fs::file_size(file, failed);
    if (!failed) sum += static_cast<int64_t>(size);
  }
  return sum;
}

std::vector<ModelConfig> find_models(const std::string& folder) {
  std::vector<ModelConfig> out;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    std::string name = path.stem().string();
    if (name.empty() || name.starts_with('.')) continue;
    if (path.extension() == ".gguf" && fs::is_regular_file(path, ignored)) {
      if (part_of(name) > 1 || name.starts_with("mmproj")) continue;
      if (part_of(name) == 1) name.resize(name.size() - 15);
    } else if (fs::is_regular_file(path / "config.json", ignored)) {
      name = path.filename().string();
    } else {
      continue;
    }
    out.push_back({.name = name, .path = path.string(), .found = true});
  }
  std::ranges::sort(out, {}, &ModelConfig::name);
  const auto same = std::ranges::unique(out, {}, &ModelConfig::name);
  out.erase(same.begin(), same.end());
  return out;
}

Result<std::shared_ptr<ServedModel>> load_served_model(const ModelConfig& config,
                                                       const std::shared_ptr<MemoryAccounts>& shared,
                                                       const FreeMemory& free_memory,
                                                       const std::shared_ptr<AnswerMemory>& answers) {
  LoadOptions load = config.load;
  load.shared_memory = shared;
  load.memory_name = config.name;
  if (shared) {  // do not even try to load what cannot fit
    const int64_t least = model_file_bytes(config.path);
    while (shared->left() < least && free_memory()) {
    }
  }
  // Appends what other models hold if memory was insufficient.
  const auto failure = [&](const Error& error) {
    std::string held;
    if (shared && error.kind == ErrorKind::resource)
      for (const MemoryAccount& one : shared->list())
        if (one.bytes > 0)
          held += fmt::format("{}{} {}", held.empty() ? "; memory held by all models: " : ", ", one.name,
                              format_bytes(one.bytes));
    return Error{error.kind, fmt::format("model '{}': {}{}", config.name, error.message, held)};
  };
  const auto short_of_memory = [&](const Error& error) { return error.kind == ErrorKind::resource && free_memory(); };
  try {
    auto model = LanguageModel::load(config.path, load);
    while (!model.ok() && short_of_memory(model.error())) model = LanguageModel::load(config.path, load);
    if (!model.ok()) return failure(model.error());
    if (const std::string& note = (*model)->parts().weights_note; load.warn && !note.empty())
      load.warn(fmt::format("model '{}': {}", config.name, note));
    SamplingOptions sampling;
    auto defaults = config.sampling ? config.sampling(**model, config.defaults) : Result<SamplingOptions>(sampling);
    if (!defaults.ok()) return failure(defaults.error());
    sampling = *defaults;
    if (!config.sampling)
      if (auto done = apply_defaults(config.defaults, sampling); !done.ok()) return failure(done.error());
    if (const int64_t trained = (*model)->info().context; load.warn && load.context > trained)
      load.warn(
          fmt::format("model '{}': a context of {} tokens: the model was trained for {}; answers beyond that are "
                      "poor",
                      config.name, load.context, trained));
    if (const std::string note = capped_context_note(load.context, (*model)->info().context);
        load.warn && !note.empty())
      load.warn(fmt::format("model '{}': {}", config.name, note));
    auto ranker = make_ranker(**model, config.defaults.ranker);
    if (!ranker.ok()) return failure(ranker.error());
    EngineOptions options = config.engine;
    auto prompts = PromptWorker::create(*model, config.prompt_passes, options.threads);  // the engine takes the rest
    while (!prompts.ok() && short_of_memory(prompts.error()))
      prompts = PromptWorker::create(*model, config.prompt_passes, options.threads);
    if (!prompts.ok()) return failure(prompts.error());
    const auto reserve = [&] { return TextMemory::reserve((*model)->parts().accounts, (*model)->info().context); };
    auto text_memory = reserve();
    while (!text_memory.ok() && short_of_memory(text_memory.error())) text_memory = reserve();
    if (!text_memory.ok()) return failure(text_memory.error());
    std::shared_ptr<AnswerMemory> own = answers;
    const auto make = [&](EngineOptions& wish) {
      return shared ? make_engine(*model, wish, true) : make_beside_answers(*model, wish, own);
    };
    auto engine = make(options);
    if (!engine.ok() && options.drafter_if_possible) {
      // Only if the engine exists without its drafter is the drafter what was wrong.
      EngineOptions without = options;
      without.drafter.clear();
      without.drafter_if_possible = false;
      auto plain = make(without);
      if (plain.ok()) leave_out_drafter(options, load, config.name, engine.error().message);
      engine = std::move(plain);
    }
    while (!engine.ok() && short_of_memory(engine.error())) engine = make(options);
    if (!engine.ok()) return failure(engine.error());
    std::vector<std::string> names = {config.name};
    names.insert(names.end(), config.aliases.begin(), config.aliases.end());
    auto served = std::make_shared<ServedModel>(std::move(names), std::move(*model), std::move(*engine), options,
                                                sampling, config.pooling, std::move(*prompts));
    served->text_memory = std::move(*text_memory);
    served->answers = std::move(own);
    served->system = config.system;
    served->ranker = std::move(*ranker);
    served->stop_strings = config.defaults.stop;
    served->max_tokens = config.defaults.max_tokens;
    if (config.apply_adapters) {
      std::map<std::string, double> scales;
      for (const AdapterInfo& adapter : served->engine->adapters()) scales[adapter.name] = 1;
      served->adapter_scales.set(std::move(scales));
    }
    return served;
  } catch (const std::bad_alloc&) {
    return failure(Error::resource("out of memory while loading"));
  } catch (const std::system_error& error) {  // a thread could not be started
    return failure(Error::resource(
        fmt::format("the system refuses what loading needs: {}; raise the limit of threads", error.what())));
  } catch (const std::exception& error) {
    return failure(Error::internal(fmt::format("loading failed: {}", error.what())));
  }
}

}  // namespace millrace
