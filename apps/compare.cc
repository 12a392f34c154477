// millrace compare: configurations of techniques side by side on one model.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/cpu.h"
#include "base/pending_file.h"
#include "base/version.h"
#include "bench_report.h"
#include "command.h"
#include "compare/compare_picture.h"
#include "compare/compare_report.h"
#include "compare/suite_text.h"
#include "hub_model.h"
#include "input.h"
#include "interrupt.h"
#include "model_flags.h"
#include "progress.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr const char* kCompareExamples = R"(Examples:
  millrace compare --with kv_format=kivi:bits=2 --with evictor=streamingllm:window=508 --on perplexity --text book.txt
  millrace compare -m model.gguf --with "name=4 bits + model=small-q4_0.gguf" --with "kv_format=q8_0 + drafter=ngram" \
    --on lab:copy,needle --html report.html
  millrace compare -m model.gguf --with engine=llama_cpp:bin=/opt/llama.cpp/bin --on perplexity --text book.txt
  millrace compare -m model.gguf --with drafter=ngram --on spec:question.jsonl --repeat 7 --resume spec.journal

A configuration is written as for --use, choices joined by " + "; model=PATH takes another model file, engine=... another
engine, name=... names it in tables, plain is the model as it is. Each round runs every configuration once, one after the
other. Quality figures are the same each time; intervals are 95 %, by the bootstrap over items or rounds.
Suites: )";

struct CompareFlags {
  ModelFlags model;
  std::string base = "plain";
  std::vector<std::string> with, suites;
  std::string text, json, html, svg, png, resume, draft_length = "auto";
  SuiteInput input;
};

using LoadedModels = std::map<std::string, std::shared_ptr<const LanguageModel>>;

int thread_count(const CompareFlags& flags) {
  return flags.model.threads > 0 ? flags.model.threads : available_cores();
}

std::string machine_text(const CompareFlags& flags, const LanguageModel& model) {
  return fmt::format("{}, {} threads, {}", machine_facts()["cpu_info"].get<std::string>(), thread_count(flags),
                     isa_name(model.parts().kernels.isa));
}

// A model is loaded once for all configurations with the same file, router and source of weights.
Result<std::shared_ptr<const LanguageModel>> load_once(const CompareFlags& flags, LoadedModels& loaded,
                                                       const CompareSpec& spec, const LoadOptions& choices) {
  ModelFlags model = flags.model;
  if (!spec.model.empty()) model.path = spec.model;
  auto& known = loaded[fmt::format("{} {} {}", choices.router, choices.weights, model.path)];
  if (known) return known;
  MILLRACE_TRY(LoadOptions options, model.load_options());
  options.router = choices.router;
  options.weights = choices.weights;
  ProgressBar bar("loading");
  options.progress = [&](double fraction) { bar.update(fraction); };
  MILLRACE_TRY(const std::string local, local_model(model.path));
  MILLRACE_TRY(known, LanguageModel::load(local, options));
  return known;
}

Result<CompareConfig> make_config(const CompareFlags& flags, LoadedModels& loaded, const CompareSpec& spec) {
  if (!spec.engine.empty()) {
    CompareConfig config;
    config.spec = spec;
    MILLRACE_TRY(const std::string path, local_model(spec.model.empty() ? flags.model.path : spec.model));
    MILLRACE_TRY(config.external, make_external_engine(spec.engine, {path, thread_count(flags)}));
    return config;
  }
  EngineOptions engine;
  engine.threads = flags.model.threads;
  engine.context = flags.model.context;
  engine.draft_length = flags.draft_length;
  return make_compare_config(spec, engine, [&](const CompareSpec& of, const LoadOptions& choices) {
    return load_once(flags, loaded, of, choices);
  });
}

Result<std::vector<CompareConfig>> make_configs(const CompareFlags& flags) {
  std::vector<std::string> texts = {flags.base};
  texts.insert(texts.end(), flags.with.begin(), flags.with.end());
  std::vector<CompareSpec> specs;
  for (const std::string& text : texts) {
    auto spec = parse_compare_spec(text);
    if (!spec.ok()) return Error{spec.error().kind, "configuration " + spec.error().message};
    for (const CompareSpec& other : specs)
      if (other.text == spec->text) return Error::user(fmt::format("configuration '{}' is given twice", spec->text));
    specs.push_back(std::move(*spec));
  }
  if (!specs.front().engine.empty())
    return Error::user("--base: must be a configuration of millrace; name the other engine by --with");
  LoadedModels loaded;
  std::vector<CompareConfig> configs;
  for (const CompareSpec& spec : specs) {
    auto config = make_config(flags, loaded, spec);
    if (!config.ok()) return Error{config.error().kind, fmt::format("{}: {}", spec.text, config.error().message)};
    configs.push_back(std::move(*config));
  }
  return configs;
}

Result<CompareJournal> open_journal(const CompareFlags& flags, const LanguageModel& model) {
  if (flags.resume.empty()) return CompareJournal();
  const ModelInfo& info = model.info();
  const std::string facts =
      fmt::format("{}, {} of {} parameters in {} bytes, context {}, base {}, {}", kVersionText, info.name,
                  info.parameters, info.weight_bytes, flags.model.context, flags.base, machine_text(flags, model));
  MILLRACE_TRY(auto journal, CompareJournal::open(flags.resume, facts));
  if (journal.read() > 0) fmt::print(stderr, "millrace: {} values from {}\n", journal.read(), flags.resume);
  return journal;
}

// How much a drafter that chooses among others loses against the best of these, on each task and on average.
void add_regret(std::span<const CompareConfig> configs, const std::vector<std::vector<SuiteFigure>>& figures,
                CompareResult& result) {
  for (size_t c = 0; c < configs.size(); ++c) {
    if (!configs[c].engine.drafter.starts_with("best")) continue;
    std::string tasks;
    double sum = 0;
    int count = 0;
    for (size_t f = 0; f < figures[c].size(); ++f) {
      const SuiteFigure& own = figures[c][f];
      if (!own.of_group || !own.metric.starts_with("tokens_per_step")) continue;
      double best = 0;
      for (size_t other = 0; other < configs.size(); ++other)
        if (other != c && !configs[other].engine.drafter.empty())
          best = std::max(best, figures[other][f].interval.value);
      if (best <= 0) continue;
      const double regret = 1 - own.interval.value / best;
      tasks += fmt::format("{}{} {:.1f} %", tasks.empty() ? "" : ", ", own.metric.substr(own.metric.find('@') + 1),
                           100 * regret);
      sum += regret;
      ++count;
    }
    if (count > 0)
      result.notes.push_back(
          fmt::format("{}: tokens a step below the best of the other drafters: {:.1f} % on average ({})",
                      configs[c].spec.name, 100 * sum / count, tasks));
  }
}

// False: interrupted.
Result<bool> measure(SuiteRun& run, std::span<const CompareConfig> configs, CompareJournal& journal,
                     const std::string& label, CompareResult& result) {
  ProgressBar bar(label + " " + run.plan().name);
  MILLRACE_TRY(const SuiteValues values, run_suite(run, configs, journal, [&](double fraction) {
                 bar.update(fraction);
                 return !interrupted();
               }));
  for (size_t c = 0; c < configs.size(); ++c)
    if (!values.left_out[c].empty())
      result.notes.push_back(
          fmt::format("{}: {} is left out: {}", values.plan.name, configs[c].spec.name, values.left_out[c]));
  result.notes.insert(result.notes.end(), run.notes().begin(), run.notes().end());
  if (values.plan.name == "speed") {
    for (size_t c = 0; c < configs.size(); ++c) {
      result.configs[c].prefill = values.of(c, kPrefillMetric);
      result.configs[c].decode = values.of(c, kDecodeMetric);
      result.configs[c].ttft = values.of(c, kTtftMetric);
    }
  } else {
    const auto figures = suite_figures(values);
    add_regret(configs, figures, result);
    for (size_t c = 0; c < configs.size(); ++c)
      result.configs[c].quality.insert(result.configs[c].quality.end(), figures[c].begin(), figures[c].end());
  }
  return values.complete;
}

using ReadRates = std::map<int64_t, double>;  // GB/s, by bytes of a step

// Other load on the machine varies, so the rates are measured before and after the rounds, and the higher value counts.
void raise_read_rates(std::span<const CompareConfig> configs, ReadRates& rates) {
  for (const CompareConfig& config : configs) {
    if (!config.model || interrupted()) continue;
    double& rate = rates[config.model->info().step_bytes];
    rate = std::max(rate, measure_read_rate(config));
  }
}

void add_roofs(const CompareFlags& flags, std::span<const CompareConfig> configs, const ReadRates& rates,
               CompareResult& result) {
  for (size_t c = 0; c < configs.size(); ++c) {
    if (!configs[c].model) continue;
    const auto rate = rates.find(configs[c].model->info().step_bytes);
    if (rate == rates.end()) continue;
    result.configs[c].roof_tokens_per_s =
        decode_roof_tokens_per_s(configs[c], flags.input.prompt + flags.input.generate, rate->second);
    result.read_gb_per_s = std::max(result.read_gb_per_s, rate->second);
  }
}

// What cannot be measured is a note: the rest has been measured by then.
void add_memory(const CompareFlags& flags, std::span<const CompareConfig> configs, CompareResult& result) {
  const int64_t longest = flags.input.prompt + flags.input.generate;
  for (size_t c = 0; c < configs.size(); ++c) {
    ConfigResult& own = result.configs[c];
    if (!configs[c].model) {
      std::error_code missing;
      const std::string& model = configs[c].spec.model;
      const auto bytes = std::filesystem::file_size(model.empty() ? flags.model.path : model, missing);
      if (!missing) own.memory.weights_bytes = static_cast<int64_t>(bytes);
      continue;
    }
    const int64_t fitting = std::min(longest, compare_context(configs[c]));
    auto memory = measure_memory(configs[c], std::min(flags.input.prompt, fitting - 1), fitting);
    if (memory.ok())
      own.memory = *memory;
    else
      result.notes.push_back(fmt::format("memory: {} is left out: {}", own.name, memory.error().message));
  }
}

Result<void> write_output(const std::string& path, const std::string& text) {
  if (path.empty()) return {};
  PendingFile file(path);
  if (file.created() && file.write(text.data(), std::ssize(text), 0) && file.commit()) return {};
  return Error::resource(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

Result<void> write_outputs(const CompareFlags& flags, const CompareResult& result) {
  std::string command = "millrace compare";
  if (!flags.model.path.empty()) command += " -m " + flags.model.path;
  for (const ConfigResult& config : result.configs)
    command += fmt::format("\n  --{} \"{}\"", &config == &result.configs.front() ? "base" : "with", config.spec);
  for (const std::string& suite : flags.suites) command += "\n  --on " + suite;
  MILLRACE_TRY_VOID(write_output(
      flags.json, compare_json(result).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
  MILLRACE_TRY_VOID(write_output(flags.html, compare_html(result, command)));
  if (flags.svg.empty() && flags.png.empty()) return {};
  const Picture picture = front_picture(result, 0);
  MILLRACE_TRY_VOID(write_output(flags.svg, picture.svg()));
  return flags.png.empty() ? Result<void>() : picture.write_png(flags.png);
}

CompareResult empty_result(const CompareFlags& flags, std::span<const CompareConfig> configs) {
  CompareResult result;
  result.model = configs.front().model->info().name;
  result.rounds = flags.input.rounds;
  result.version = kVersionText;
  result.machine = machine_text(flags, *configs.front().model);
  for (const CompareConfig& config : configs)
    result.configs.push_back({.name = config.spec.name, .spec = config.spec.text, .applied = config.applied});
  return result;
}

Result<int> compare(CompareFlags flags) {
  catch_interrupts();
  for (const auto& [flag, path] :
       {std::pair("--json", &flags.json), {"--html", &flags.html}, {"--svg", &flags.svg}, {"--png", &flags.png}})
    MILLRACE_TRY_VOID(check_writable(flag, *path));
  if (!flags.text.empty()) {
    MILLRACE_TRY(flags.input.text, read_suite_text(flags.text));
  }
  flags.input.threads = flags.model.threads;
  MILLRACE_TRY(const auto configs, make_configs(flags));
  std::vector<std::unique_ptr<SuiteRun>> runs;
  for (const std::string& suite : flags.suites) {
    MILLRACE_TRY(auto run, begin_suite(suite, configs, flags.input));
    runs.push_back(std::move(run));
  }
  if (flags.input.rounds > 0) {
    MILLRACE_TRY(auto run, begin_speed(configs, flags.input));
    runs.push_back(std::move(run));
  }
  MILLRACE_TRY(auto journal, open_journal(flags, *configs.front().model));
  CompareResult result = empty_result(flags, configs);
  bool complete = true;
  ReadRates rates;
  for (size_t i = 0; i < runs.size() && complete; ++i) {
    const bool speed = runs[i]->plan().name == "speed";
    if (speed) raise_read_rates(configs, rates);
    MILLRACE_TRY(complete, measure(*runs[i], configs, journal, fmt::format("{}/{}", i + 1, runs.size()), result));
    if (speed) raise_read_rates(configs, rates);
    runs[i].reset();  // its engines
  }
  if (!complete) {
    result.notes.push_back("Interrupted: the figures are of what every configuration had measured by then." +
                           std::string(flags.resume.empty() ? "" : " The same command continues."));
  }
  add_roofs(flags, configs, rates, result);
  add_memory(flags, configs, result);
  fmt::print("{}", compare_table(result));
  MILLRACE_TRY_VOID(write_outputs(flags, result));
  return complete ? 0 : 130;
}

std::string suite_list() {
  std::string out;
  for (const CompareSuite* suite : compare_suites().members())
    out +=
        fmt::format("\n  {}{}{}  {}", suite->name, suite->argument.empty() ? "" : ":", suite->argument, suite->summary);
  return out;
}

void add_sizes(CLI::App* command, SuiteInput& input) {
  command->add_option("--items", input.items, "Most items of each suite; 0: the suite's own number")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  command->add_option("--repeat", input.rounds, "Rounds of what is timed; 0: no speed")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--prompt", input.prompt, "Tokens of the prompt of what is timed")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--generate", input.generate, "Tokens of its answer")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
}

}  // namespace

void add_compare_command(CLI::App& app) {
  auto flags = std::make_shared<CompareFlags>();
  static const std::string examples = kCompareExamples + suite_list();
  CLI::App* command =
      add_command(app, "compare", "Compare configurations of techniques on one model: quality, speed, memory",
                  examples.c_str(), [flags] { return compare(*flags); });
  flags->model.add_to(command);
  command->add_option("--base", flags->base, "Configuration that the others are compared with")->capture_default_str();
  command->add_option("--with", flags->with, "A configuration; repeatable")->required();
  command->add_option("--on", flags->suites, "Suites, NAME or NAME:argument, separated by commas")->delimiter(',');
  command
      ->add_option("--draft-length", flags->draft_length,
                   "How much of a draft a step verifies: auto, as much as pays; or fixed, all of it")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "fixed"}));
  command->add_option("--text", flags->text, "Text for the suites and the prompts, may be packed with xz");
  add_sizes(command, flags->input);
  command->add_option("--json", flags->json, "Write the result to this file as JSON");
  command->add_option("--html", flags->html, "Write a report to this file");
  command->add_option("--svg", flags->svg, "Write the picture to this file");
  command->add_option("--png", flags->png, "Write the picture to this file");
  command->add_option("--resume", flags->resume, "Keep measured values in this file, and continue from it");
}

}  // namespace millrace
