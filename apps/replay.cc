// millrace replay: sends a recorded or generated load to an engine at the recorded times, and measures the result.
#include <fmt/format.h>
#include <sys/resource.h>

#include <optional>

#include "base/memory_accounts.h"
#include "base/ordered_json.h"
#include "command.h"
#include "durations.h"
#include "input.h"
#include "interrupt.h"
#include "memory_report.h"
#include "model_flags.h"
#include "picture_flags.h"
#include "progress.h"
#include "replay/replay_run.h"
#include "replay_output.h"
#include "replay_plans.h"
#include "replay_predict.h"
#include "replay_recording.h"
#include "run/plan/kv_places.h"
#include "running.h"
#include "schedule/cost_model.h"
#include "table_room.h"
#include "workload/remote/http_load.h"
#include "workload_flags.h"

namespace millrace {
namespace {

constexpr const char* kReplayExamples = R"(Examples:
  millrace replay --trace gen:requests=100,rate=2 --in-process -m model.gguf
  millrace replay --trace conversation_trace.jsonl.xz --limit 50 --max-prompt 2000 --rate 0.5 --in-process --report replay.html
  millrace replay --trace gen:requests=64,prompt=fixed:128,output=fixed:64 --in-process --closed-loop 16 --json
  millrace replay --trace gen:requests=100,rate=2 --in-process -m model.gguf --predict here.json  (of bench --calibrate)
  millrace replay --trace gen:requests=9,rate=2 --in-process --record-plans steps.txt   (then --replay-plans steps.txt)
  millrace replay --trace gen:requests=100,rate=2 --url http://localhost:8080 --api chat --patience 60
  millrace replay --recording requests.jsonl -m model.gguf   check that a server's recorded answers are reproduced

By default the load is an open loop: each request is sent at the time given by the trace even if the engine is behind,
and its latency is measured from that time. Answers have the recorded lengths. Prompts are synthetic and share prefixes
like the recorded ones. The API key of a server is read from MILLRACE_API_KEY.)";

struct ReplayFlags {
  ModelFlags model;
  EngineFlags engine;
  WorkloadFlags load;
  ReplayRecordingFlags recording;
  double patience = 0, silence = 600;
  GoodputLimits limits;
  PictureFlags picture;
  int64_t closed_loop = 0, max_streams = 8, queue = 1 << 16, vocab = 32000;
  std::string report, predict, plans, url, api = "completions", served_model;
  bool in_process = false, json = false, text_prompts = false, wide = false;
};

// The result of a run, for the prediction and the report.
struct ReplayRun {
  std::vector<RequestRecord> records;
  EngineOptions options;  // with the actual context and KV tokens
  int64_t vocab = 0;
  std::optional<EngineStats> stats;  // of an in-process engine, at the end
  double cpu_seconds = 0;            // of this process during the load: of the engine, or of the client
};

double cpu_seconds_so_far() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

auto show_progress(ProgressBar& bar, size_t requests) {
  return [&bar, requests](int64_t done, int64_t in_flight) {
    bar.update(static_cast<double>(done) / static_cast<double>(requests),
               fmt::format("{} done, {} in flight", done, in_flight));
    return !interrupted();
  };
}

// Buckets of the histograms: under 1 ms, then [2^(i-1), 2^i) ms.
nlohmann::ordered_json ages_json(const AgeHistogram& ages) {
  return {{"count", ages.count()},
          {"mean", ages.mean_seconds()},
          {"p50", ages.quantile_seconds(0.5)},
          {"p99", ages.quantile_seconds(0.99)},
          {"buckets", ages.buckets()}};
}

nlohmann::ordered_json prefix_json(const PrefixCacheStats& p) {
  return {{"queries", p.queries},
          {"query_tokens", p.query_tokens},
          {"hit_tokens", p.hit_tokens},
          {"stored_blocks", p.stored_blocks},
          {"erased_blocks", p.erased_blocks},
          {"block_lifetime_seconds", ages_json(p.lifetime)},
          {"block_idle_seconds", ages_json(p.idle)},
          {"reuse_gap_seconds", ages_json(p.reuse_gap)}};
}

void print_prefix(const PrefixCacheStats& p, const TableRoom& room) {
  if (p.queries == 0) return;
  std::string text = fmt::format("prefix cache: {} lookups, {} of {} tokens found; {} blocks stored, {} evicted",
                                 p.queries, p.hit_tokens, p.query_tokens, p.stored_blocks, p.erased_blocks);
  if (p.erased_blocks > 0)
    text += fmt::format(" after {:.1f} s, {:.1f} s of them unused", p.lifetime.mean_seconds(), p.idle.mean_seconds());
  if (p.reuse_gap.count() > 0)
    text += fmt::format("; reused after {:.1f} s (p99 {:.1f} s)", p.reuse_gap.mean_seconds(),
                        p.reuse_gap.quantile_seconds(0.99));
  print_wrapped(text, room.columns);
}

Result<EngineOptions> engine_options(const ReplayFlags& flags) {
  MILLRACE_TRY(EngineOptions options, flags.engine.get(flags.model));
  options.max_streams = flags.max_streams;
  options.queue = flags.queue;
  return options;
}

// Fills in the actual sizes. The capacity of a simulated store is in tokens instead of bytes, and it fetches all of a
// prompt's blocks.
void settle_options(EngineOptions& options, int64_t context, const EngineStats& stats) {
  options.context = context;
  options.kv_tokens = stats.kv_blocks / stats.kv_tables * options.block_tokens;
  const int64_t bytes_per_token = std::max<int64_t>(1, stats.kv_bytes / std::max<int64_t>(1, options.kv_tokens));
  const auto store = choose_store(options.kv_store);
  if (!store.ok() || store->label != kSsdStoreLabel) return;
  if (const auto bytes = parse_bytes(store->options.text("size")); bytes.ok())
    options.kv_store = SsdStoreFlags{"simulated", *bytes / bytes_per_token}.text();
}

Result<ReplayRun> run_in_process(const ReplayFlags& flags, std::span<const WorkloadRequest> load) {
  MILLRACE_TRY(const auto model, flags.model.load());
  ReplayRun run;
  MILLRACE_TRY(run.options, engine_options(flags));
  MILLRACE_TRY(auto engine, Engine::create(model, run.options));
  run.vocab = model->info().vocab;
  ProgressBar bar("replaying");
  const double cpu_before = cpu_seconds_so_far();
  run.records =
      run_replay(*engine, load, {flags.closed_loop, flags.patience, run.vocab}, show_progress(bar, load.size()));
  run.cpu_seconds = cpu_seconds_so_far() - cpu_before;
  run.stats = engine->stats();
  settle_options(run.options, engine->context(), *run.stats);
  return run;
}

// Runs the steps in a file, without an engine thread or a clock.
Result<ReplayRun> run_planned(const ReplayFlags& flags, std::span<const WorkloadRequest> load) {
  MILLRACE_TRY(const auto model, flags.model.load());
  ReplayRun run;
  MILLRACE_TRY(run.options, engine_options(flags));
  run.options.queue = std::max<int64_t>(run.options.queue, std::ssize(load));
  MILLRACE_TRY(auto core, EngineCore::create(model, run.options));
  run.vocab = model->info().vocab;
  ProgressBar bar("replaying");
  MILLRACE_TRY(auto planned, replay_plans(*core, load, run.vocab, flags.plans, show_progress(bar, load.size())));
  run.records = std::move(planned.records);
  run.stats = core->stats();
  settle_options(run.options, core->context(), *run.stats);
  return run;
}

Result<ReplayRun> run_over_http(const ReplayFlags& flags, std::span<const WorkloadRequest> load) {
  MILLRACE_TRY(const Url url, Url::parse(flags.url));
  HttpLoadOptions http;
  MILLRACE_TRY(http.style.api, find_completion_api(flags.api));
  http.style.model = flags.served_model;
  http.style.text_prompts = flags.text_prompts;
  http.style.vocab = flags.vocab;
  http.closed_loop = flags.closed_loop;
  http.patience = flags.patience;
  http.silence = flags.silence;
  http.api_key = api_key_of_environment();
  ReplayRun run;
  ProgressBar bar("replaying");
  const double cpu_before = cpu_seconds_so_far();
  MILLRACE_TRY(run.records, run_http_load(url, load, http, show_progress(bar, load.size())));
  run.cpu_seconds = cpu_seconds_so_far() - cpu_before;
  run.vocab = flags.vocab;
  MILLRACE_TRY(run.options, engine_options(flags));  // the server's engine as far as it is known, for a prediction
  if (run.options.context == 0)
    for (const WorkloadRequest& r : load)
      run.options.context = std::max(run.options.context, r.prompt_tokens + std::max<int64_t>(1, r.output_tokens) + 1);
  if (run.options.kv_tokens == 0) run.options.kv_tokens = run.options.max_streams * run.options.context;
  return run;
}

ReportFacts make_facts(const ReplayFlags& flags, const ReplayRun& run) {
  ReportFacts facts;
  const std::string target =
      flags.in_process ? (flags.model.path.empty() ? "the built-in model" : flags.model.path) : flags.url;
  facts.title = fmt::format("{} on {}", flags.load.path, target);
  facts.settings = {{"load", flags.closed_loop ? fmt::format("closed loop, {} in flight", flags.closed_loop)
                                               : std::string("open loop")}};
  if (!flags.in_process) {
    facts.settings.emplace_back("api", flags.api);
    return facts;
  }
  facts.settings.emplace_back("policy", run.options.policy);
  facts.settings.emplace_back("streams", fmt::format("{}", run.options.max_streams));
  facts.settings.emplace_back("batch tokens", fmt::format("{}", run.options.batch_tokens));
  facts.settings.emplace_back("prefix cache", run.options.prefix_cache ? run.options.prefix_evict : "off");
  return facts;
}

void add_engine_facts(nlohmann::ordered_json& facts, const EngineStats& stats) {
  facts["steps"] = stats.steps;
  facts["kv_blocks"] = stats.kv_blocks;
  facts["kv_blocks_free"] = stats.kv_blocks_free;
  facts["prefix_cache"] = prefix_json(stats.prefix);
  facts["memory"] = memory_json(stats.memory_budget, stats.memory);
}

Result<int> run_recording(ReplayFlags flags) {
  flags.recording.url = flags.url;
  flags.recording.served_model = flags.served_model;
  flags.recording.json = flags.json;
  MILLRACE_TRY(const EngineOptions options, engine_options(flags));
  return replay_recording(flags.recording, flags.model, options);
}

Result<int> run(const ReplayFlags& flags) {
  if (!flags.recording.path.empty()) return run_recording(flags);
  if (flags.load.path.empty()) return Error::user("replay: requires --trace or --recording");
  if (flags.in_process == !flags.url.empty())
    return Error::user("replay: requires either --in-process (an engine in this process) or --url");
  if (!flags.plans.empty() &&
      (!flags.in_process || flags.closed_loop > 0 || flags.patience > 0 || !flags.predict.empty()))
    return Error::user(
        "replay: --replay-plans requires --in-process and excludes --closed-loop, --patience and --predict: the plans "
        "determine what runs when");
  if (!flags.report.empty()) MILLRACE_TRY_VOID(check_drawing("--report"));
  MILLRACE_TRY_VOID(flags.picture.check());
  if (!flags.predict.empty()) MILLRACE_TRY_VOID(load_cost_model(flags.predict));  // report errors before the run
  MILLRACE_TRY(const auto load, flags.load.load());
  catch_interrupts();
  MILLRACE_TRY(const ReplayRun run, !flags.plans.empty() ? run_planned(flags, load)
                                    : flags.in_process   ? run_in_process(flags, load)
                                                         : run_over_http(flags, load));
  const LoadMetrics metrics = measure_load(run.records, flags.limits);
  std::optional<LoadMetrics> predicted;
  if (!flags.predict.empty() && !interrupted()) {
    MILLRACE_TRY(const auto records,
                 predict_replay(flags.predict, load, run.options, {flags.closed_loop, flags.patience, run.vocab}));
    predicted = measure_load(records, flags.limits);
  }
  const LoadMetrics* prediction = predicted ? &*predicted : nullptr;
  if (flags.json) {
    nlohmann::ordered_json facts = {{"trace", flags.load.path}};
    if (flags.in_process)
      facts["model"] = flags.model.path;
    else
      facts["url"] = flags.url, facts["api"] = flags.api;
    if (flags.plans.empty()) facts["cpu_seconds"] = run.cpu_seconds;
    if (run.stats) add_engine_facts(facts, *run.stats);
    print_json_line(replay_json(std::move(facts), metrics, flags.limits, prediction));
  } else {
    const TableRoom room = table_room(flags.wide, "--json");
    print_replay_text(metrics, flags.limits, prediction, room);
    if (run.stats) print_prefix(run.stats->prefix, room);
  }
  if (!flags.report.empty())
    MILLRACE_TRY_VOID(write_replay_report(flags.report, make_facts(flags, run), run.records, metrics, prediction));
  MILLRACE_TRY_VOID(flags.picture.write(replay_chart(make_facts(flags, run), run.records, metrics)));
  if (interrupted()) return 130;
  return metrics.completed > 0 ? 0 : 1;
}

}  // namespace

void add_replay_command(CLI::App& app) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = add_command(app, "replay", "Send a recorded or generated load to an engine and measure it",
                                  kReplayExamples, [=] { return run(*flags); });
  flags->load.add_to(command, "--trace");
  CLI::Option* recording = command->add_option(
      "--recording", flags->recording.path,
      "Replay a recording of `millrace serve --record` instead of a trace, and check that the answers are identical");
  command->get_option("--trace")->required(false)->excludes(recording);
  command
      ->add_option("--speed", flags->recording.speed,
                   "Recording: speed up arrivals by this factor; 0: send everything at once")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  command->add_flag("--partial", flags->recording.partial, "Recording: accept a truncated file");
  command->add_flag("--in-process", flags->in_process, "Run an engine in this process");
  command->add_option("--url", flags->url, "Send to a server: http://HOST[:PORT][/PATH], without the path of its API");
  command
      ->add_option("--api", flags->api,
                   "The server's API: completions (/v1/completions), chat (/v1/chat/completions) or llama "
                   "(llama-server's /completion)")
      ->capture_default_str();
  command->add_option("--served-model", flags->served_model, "Model name for the server; default: its only model");
  command->add_flag("--text-prompts", flags->text_prompts, "Send text instead of token ids; always for chat");
  command->add_option("--vocab", flags->vocab, "Upper bound of the token ids sent to the server")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
      ->capture_default_str();
  command->add_option("--silence", flags->silence, "Give up an answer after this time without data")
      ->transform(as_seconds())
      ->check(CLI::Range(0.001, 1e9))
      ->capture_default_str();
  command->add_option(
      "--predict", flags->predict,
      "Also simulate this run with a cost model (a file from bench --calibrate, or a built-in machine) and "
      "compare with the measurement");
  flags->model.add_to(command);
  flags->engine.add_to(command);
  command->add_option("--replay-plans", flags->plans,
                      "Run the steps in this file, written by --record-plans with the same load and engine settings, "
                      "instead of scheduling");
  command->add_option("--max-streams", flags->max_streams, "Concurrently running streams")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--queue", flags->queue, "Most queued requests; further ones are rejected")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  command->add_option("--closed-loop", flags->closed_loop, "Keep N requests in flight and ignore arrival times")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--patience", flags->patience, "Cancel requests that take longer than this")
      ->transform(as_seconds())
      ->check(CLI::Range(0.001, 1e9));
  add_goodput_limits(command, flags->limits);
  command->add_option("--report", flags->report, "Write an HTML report with the figures over time");
  flags->picture.add_to(command, "the charts of the report");
  command->get_option("--picture")->excludes(recording);
  command->add_flag("--json", flags->json, "Print one JSON object");
  add_wide_to(command, &flags->wide, replay_drop_order());
}

}  // namespace millrace
