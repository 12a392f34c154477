// millrace compare: configurations of techniques side by side on one model.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>

#include "base/cpu.h"
#include "base/pending_file.h"
#include "base/version.h"
#include "bench_report.h"
#include "command.h"
#include "compare/compare_picture.h"
#include "compare/compare_report.h"
#include "compare/comparison.h"
#include "compare/suite_text.h"
#include "hub_model.h"
#include "input.h"
#include "interrupt.h"
#include "model_flags.h"
#include "picture_flags.h"
#include "progress.h"
#include "run/language_model.h"
#include "table_room.h"

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

Suites:)";

struct CompareFlags {
  ModelFlags model;
  std::string base = "plain";
  std::vector<std::string> with, suites;
  std::string text, json, html, svg, png, resume, draft_length = "auto";
  PictureFlags picture;
  SuiteInput input;
  bool wide = false;
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
  MILLRACE_TRY(const auto specs, parse_configurations(texts));
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
  if (!flags.html.empty()) {
    MILLRACE_TRY(const std::string html, compare_html(result, command));
    MILLRACE_TRY_VOID(write_output(flags.html, html));
  }
  if (flags.svg.empty() && flags.png.empty() && flags.picture.path.empty()) return {};
  const Chart chart = front_chart(result, 0);
  MILLRACE_TRY_VOID(flags.picture.write(chart));
  MILLRACE_TRY(const PictureTheme theme, find_picture_theme(flags.picture.theme));
  if (!flags.svg.empty()) MILLRACE_TRY_VOID(write_picture(chart, flags.svg, PictureFormat::svg, theme));
  return flags.png.empty() ? Result<void>() : write_picture(chart, flags.png, PictureFormat::png, theme);
}

// Reports a file that cannot be written, or drawn, before anything is measured.
Result<void> check_outputs(const CompareFlags& flags) {
  for (const auto& [flag, path] :
       {std::pair("--json", &flags.json), {"--html", &flags.html}, {"--svg", &flags.svg}, {"--png", &flags.png}})
    MILLRACE_TRY_VOID(check_writable(flag, *path));
  for (const auto& [flag, path] : {std::pair("--html", &flags.html), {"--svg", &flags.svg}, {"--png", &flags.png}})
    if (!path->empty()) MILLRACE_TRY_VOID(check_drawing(flag));
  return flags.picture.check();
}

// Shows each part of the comparison as a bar of its own.
class PartBars {
 public:
  // Returns false after Ctrl-C.
  bool show(const std::string& part, double fraction) {
    if (part != part_) {
      bar_.reset();  // erases the bar before the next one is drawn
      bar_.emplace(part_ = part);
    }
    bar_->update(fraction);
    return !interrupted();
  }

 private:
  std::string part_;
  std::optional<ProgressBar> bar_;
};

Result<Comparison> measure(const CompareFlags& flags, std::span<const CompareConfig> configs) {
  const LanguageModel& base = *configs.front().model;
  const ComparisonPlan plan{.suites = flags.suites,
                            .input = flags.input,
                            .machine = machine_text(flags, base),
                            .model_path = flags.model.path,
                            .resumable = !flags.resume.empty()};
  MILLRACE_TRY(auto journal, open_journal(flags, base));
  PartBars bars;
  MILLRACE_TRY(Comparison done, run_comparison(plan, configs, journal, [&](const std::string& part, double fraction) {
                 return bars.show(part, fraction);
               }));
  done.result.version = kVersionText;
  return done;
}

Result<int> compare(CompareFlags flags) {
  catch_interrupts();
  MILLRACE_TRY_VOID(check_outputs(flags));
  if (!flags.text.empty()) {
    MILLRACE_TRY(flags.input.text, read_suite_text(flags.text));
  }
  flags.input.threads = flags.model.threads;
  MILLRACE_TRY(const auto configs, make_configs(flags));
  MILLRACE_TRY(const Comparison done, measure(flags, configs));
  fmt::print("{}", compare_table(done.result, table_room(flags.wide, "--json").columns));
  MILLRACE_TRY_VOID(write_outputs(flags, done.result));
  return done.complete ? 0 : 130;
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
  add_wide_to(command, &flags->wide,
              "peak, MB; prefill tokens/s; first token, ms; figures of the suites but the first, the last one first; "
              "weights, MB; KV of a stream, MB; decode tokens/s");
  command->add_option("--html", flags->html, "Write a report to this file");
  flags->picture.add_to(command, "quality against speed and memory");
  command->add_option("--svg", flags->svg, "Write the same picture to this file as SVG");
  command->add_option("--png", flags->png, "Write the same picture to this file as PNG");
  command->add_option("--resume", flags->resume, "Keep measured values in this file, and continue from it");
}

}  // namespace millrace
