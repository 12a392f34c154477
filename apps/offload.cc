// millrace offload plan: what each source of weights would do with a model in a given memory, and how fast.
// millrace offload profile: how often a text uses each expert of a mixture, for weights=experts:cold=FORMAT.
#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/memory_accounts.h"
#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/expert_uses.h"
#include "input.h"
#include "model_flags.h"
#include "models/known_costs.h"
#include "progress.h"
#include "run/language_model.h"
#include "run/plan/offload_plan.h"
#include "run/plan/offload_probe.h"
#include "run/plan/packed_cache_path.h"
#include "table_room.h"
#include "text/tokenizer.h"

namespace millrace {
namespace {

constexpr const char* kOffloadExamples = R"(Examples:
  millrace offload plan large.gguf --memory 4G               which source of weights is the fastest in 4 GB
  millrace offload plan large.gguf --memory 4G --streams 16  for 16 streams together
  millrace offload plan large.gguf --memory 4G --measure     measure this machine again
  millrace offload profile mixture.gguf -f text.txt -o mixture.experts
  millrace run -m mixture.gguf --use weights=experts:cold=q4_0,hot=0.25,profile=mixture.experts -p "Once upon a time"

The first plan of a model measures its first layers for some seconds, and stores the result next to its packed cache.
millrace run, chat and serve with --memory choose the same way if a model does not fit. A profile counts how often a text
uses each expert: cold ones are then packed in fewer bits, which changes answers.)";

struct PlanFlags {
  std::string action;
  ModelFlags model;
  int64_t streams = 1, context = 640, generated = 128, batch_tokens = 512;
  std::optional<double> skew;
  bool measure = false, json = false, wide = false;
  std::string text, out;  // for profile
  int64_t tokens = 4096;
};

// Bytes that the model and its engine may have of the budget: as LanguageModel::load() and its accounts count them.
// Called before anything large is in memory.
Result<int64_t> memory_left(const PlanFlags& flags, int64_t budget, int threads, const ModelFiles& files) {
  constexpr int64_t kThreadBytes = int64_t{2} << 20;
  const int64_t before = peak_resident_bytes();
  const int64_t program = program_memory() + threads * kThreadBytes;
  int64_t tokenizer = 0;
  if (files.tokenizer) {
    MILLRACE_TRY(const auto made, Tokenizer::create(*files.tokenizer));
    tokenizer = peak_resident_bytes() - before;
  }
  if (program + tokenizer < budget) return budget - program - tokenizer;
  return Error::resource(fmt::format("--memory {}: the program and the tokenizer need {}; raise it", flags.model.memory,
                                     format_bytes(program + tokenizer)));
}

// The costs that are stored for the model, or that are measured now and then stored.
Result<OffloadCosts> plan_costs(const PlanFlags& flags, const std::shared_ptr<const ModelFiles>& files,
                                const KernelTable& kernels, int threads, const std::string& key) {
  const std::string cache = default_packed_cache_path(files->path);
  if (files->files.empty())
    return Error::unsupported("offload plan: a built-in model has no file to read weights from");
  if (cache.empty()) return Error::unsupported("offload plan: no folder for the packed cache; set XDG_CACHE_HOME");
  if (!flags.measure)
    if (auto stored = read_costs(costs_path(cache), key); stored.ok()) return stored;
  ProgressBar bar("measuring passes and reads");
  OffloadProbe probe{.files = files,
                     .kernels = kernels,
                     .threads = std::make_shared<ThreadPool>(threads),
                     .scratch_file = cache + ".probe",
                     .progress = [&](double fraction) { bar.update(fraction); }};
  MILLRACE_TRY(OffloadCosts costs, measure_offload_costs(probe));
  MILLRACE_TRY_VOID(write_costs(costs_path(cache), key, costs));
  return costs;
}

nlohmann::ordered_json source_json(const PlannedSource& one) {
  if (!one.refusal.empty()) return {{"weights", one.name}, {"runs", false}, {"reason", one.refusal}};
  const WeightForecast& forecast = one.forecast;
  return {{"weights", one.name},
          {"runs", true},
          {"use", "weights=" + one.weights},
          {"kept_bytes", forecast.kept_bytes},
          {"cache_bytes", forecast.cache_bytes},
          {"decode_bytes_read", forecast.decode_bytes},
          {"prefill_bytes_read", forecast.prefill_bytes},
          {"decode_tokens_per_s", one.decode_tokens_per_second},
          {"prefill_tokens_per_s", one.prefill_tokens_per_second},
          {"seconds", one.seconds},
          {"note", forecast.note}};
}

void print_plan_json(const OffloadPlan& plan, const PlanFlags& flags) {
  nlohmann::ordered_json out = {{"weight_bytes", plan.weight_bytes},
                                {"limit_bytes", plan.limit},
                                {"resident_limit_bytes", plan.resident_limit},
                                {"streams", flags.streams},
                                {"context", flags.context},
                                {"generated", flags.generated},
                                {"read_bytes_per_s", plan.costs.read_bytes}};
  auto& sources = out["sources"] = nlohmann::ordered_json::array();
  for (const PlannedSource& one : plan.sources) sources.push_back(source_json(one));
  if (plan.best)
    out["best"] = plan.sources[*plan.best].name;
  else
    out["best"] = nullptr;
  print_json_line(out);
}

std::vector<TableColumn> plan_columns() {
  return {{.name = "weights", .left = true},
          {.name = "stay in memory"},
          {.name = "share memory", .drops = 1},
          {.name = "read in a step"},
          {.name = "decode tokens/s"},
          {.name = "prefill tokens/s"},
          {.name = "note", .left = true, .wraps = true}};
}

void print_plan(const OffloadPlan& plan, const PlanFlags& flags) {
  fmt::print("weights: {} packed; may have {} of --memory {}, or {} if all stay in memory\n",
             format_bytes(plan.weight_bytes), format_bytes(plan.limit), flags.model.memory,
             format_bytes(plan.resident_limit));
  fmt::print("{} stream{} of {} tokens, {} of them generated\n\n", flags.streams, flags.streams == 1 ? "" : "s",
             flags.context, flags.generated);
  TextTable table(TableLook::markdown, plan_columns());
  for (const PlannedSource& one : plan.sources) {
    const WeightForecast& forecast = one.forecast;
    if (one.refusal.empty())
      table.add({one.name, format_bytes(forecast.kept_bytes), format_bytes(forecast.cache_bytes),
                 format_bytes(static_cast<int64_t>(forecast.decode_bytes)),
                 fmt::format("{:.3g}", one.decode_tokens_per_second),
                 fmt::format("{:.3g}", one.prefill_tokens_per_second), forecast.note});
    else
      table.add({one.name, "", "", "", "does not run", "", one.refusal});
  }
  fmt::print("{}\n", table.text(table_room(flags.wide, "--json")));
  if (plan.best)
    fmt::print("{}\n", plan.reason());
  else
    fmt::print("no source runs in this memory; raise --memory\n");
}

Result<int> run_plan(const PlanFlags& given) {
  PlanFlags flags = given;
  if (flags.model.memory.empty()) return Error::user("offload plan: give the memory, such as --memory 4G");
  const auto parsed = parse_bytes(flags.model.memory);
  if (!parsed.ok()) return Error{parsed.error().kind, "--memory: " + parsed.error().message};
  const int64_t budget = *parsed;
  if (flags.generated < 1 || flags.generated >= flags.context)
    return Error::user(fmt::format("--generated: must be from 1 to {}, less than --context, got {}", flags.context - 1,
                                   flags.generated));
  MILLRACE_TRY(const ModelFlags local, flags.model.found());
  MILLRACE_TRY(const Isa isa, select_isa());
  const int threads = local.threads > 0 ? local.threads : available_cores();
  MILLRACE_TRY(ModelFiles opened, open_model(local.path));
  const auto files = std::make_shared<const ModelFiles>(std::move(opened));
  const KernelTable kernels = make_kernel_table(isa);
  MILLRACE_TRY(const int64_t left, memory_left(flags, budget, threads, *files));
  MILLRACE_TRY(OffloadSubject subject, offload_subject(files, kernels, threads));
  MILLRACE_TRY(subject.places.costs, plan_costs(flags, files, kernels, threads, subject.costs_key));
  const OffloadPlan plan = plan_offload(subject, left,
                                        {.streams = flags.streams,
                                         .prompt = flags.context - flags.generated,
                                         .generated = flags.generated,
                                         .chunk = std::min(flags.batch_tokens, flags.context - flags.generated),
                                         .expert_skew = flags.skew,
                                         .cached_bytes = std::max<int64_t>(0, available_memory().bytes - budget)});
  if (flags.json)
    print_plan_json(plan, flags);
  else
    print_plan(plan, flags);
  return plan.best ? 0 : exit_code(ErrorKind::resource);
}

// Prints the share of the uses that cold experts would have, by the share of hot ones.
void print_profile(const ExpertProfile& profile, const PlanFlags& flags) {
  nlohmann::ordered_json shares = nlohmann::ordered_json::object();
  for (const double hot : {0.125, 0.25, 0.5, 0.75}) shares[fmt::format("{}", hot)] = cold_share(profile, hot);
  if (flags.json)
    return print_json_line({{"file", flags.out}, {"tokens", profile.tokens}, {"uses_of_cold_experts", shares}});
  for (const auto& [hot, share] : shares.items())
    fmt::print("hot={:<6} {:5.1f} % of the uses are of cold experts\n", hot, 100 * share.get<double>());
  fmt::print("{}: from {} tokens\nuse it:   --use weights=experts:cold=q4_0,hot=0.25,profile={}\n", flags.out,
             profile.tokens, flags.out);
}

Result<int> run_profile(const PlanFlags& flags) {
  if (flags.text.empty()) return Error::user("offload profile: give the text to read, such as -f text.txt");
  if (flags.out.empty()) return Error::user("offload profile: give the file to write, such as -o mixture.experts");
  MILLRACE_TRY(const auto loaded, flags.model.load_with_text(flags.text, flags.context, flags.tokens));
  const auto& [model, tokens] = loaded;
  MILLRACE_TRY(const ExpertProfile profile,
               count_expert_uses(model, tokens, {.threads = flags.model.threads, .context = flags.context}));
  MILLRACE_TRY_VOID(write_expert_profile(flags.out, profile));
  print_profile(profile, flags);
  return 0;
}

}  // namespace

void add_offload_command(CLI::App& app) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* command =
      add_command(app, "offload", "Plan how a model larger than memory runs, and predict its speed", kOffloadExamples,
                  [=] { return flags->action == "plan" ? run_plan(*flags) : run_profile(*flags); });
  flags->model.chooses_weights = true;
  command->add_option("ACTION", flags->action, "plan, or profile: count the uses of experts")
      ->required()
      ->check(CLI::IsMember({"plan", "profile"}));
  command
      ->add_option("model,-m,--model", flags->model.path,
                   "GGUF file, .safetensors file, Hugging Face folder, or a name of millrace list")
      ->required();
  command->add_option("-t,--threads", flags->model.threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_option("--memory", flags->model.memory, "Memory limit for everything, such as 8G or 512MiB");
  command->add_option("--streams", flags->streams, "Streams that run together")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  command
      ->add_option("-c,--context", flags->context,
                   "Tokens of each stream, its prompt and its answer; of a profile's window")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--generated", flags->generated, "Tokens of each answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--batch-tokens", flags->batch_tokens, "Most tokens of prompts in one step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command
      ->add_option("--expert-skew", flags->skew,
                   "How unequal the frequencies of experts are: the exponent of Zipf's law; 0: all equal [as measured]")
      ->check(CLI::Range(0.0, kMaxExpertSkew));
  command->add_option("-f,--file", flags->text, "Text file that a profile is made of");
  command->add_option("-o,--output", flags->out, "File that a profile is written to");
  command->add_option("--tokens", flags->tokens, "Tokens of the text to read, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  command->add_flag("--measure", flags->measure, "Measure passes and reads again");
  command->add_flag("--json", flags->json, "Print one line of JSON");
  add_wide_to(command, &flags->wide, plan_columns());
}

}  // namespace millrace
