// millrace replay: sends a recorded or generated load to an engine, at the recorded times, and says how it went.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "input.h"
#include "interrupt.h"
#include "model_flags.h"
#include "progress.h"
#include "replay_run.h"
#include "workload/report.h"
#include "workload_flags.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  millrace replay --trace gen:requests=100,rate=2 --in-process -m model.gguf
  millrace replay --trace conversation_trace.jsonl.xz --limit 50 --max-prompt 2000 --rate 0.5 --in-process --report replay.html
  millrace replay --trace gen:requests=64,prompt=fixed:128,output=fixed:64 --in-process --closed-loop 16 --json

Open loop: a request goes out when the trace says so, however far behind the engine is, and its times count from then.
Each answer has the recorded length. Prompts are made up so that they share what the recorded ones shared.)";

struct ReplayFlags {
  ModelFlags model;
  EngineFlags engine;
  WorkloadFlags load;
  GoodputLimits limits;
  double patience = 0, ttft_ms = 0, tpot_ms = 0, e2e_ms = 0;
  int64_t closed_loop = 0, max_streams = 8, queue = 1 << 16;
  std::string report;
  bool in_process = false, json = false;
};

nlohmann::ordered_json in_ms(const Summary& s) {
  return {{"mean", s.mean * 1e3}, {"p50", s.p50 * 1e3}, {"p90", s.p90 * 1e3}, {"p99", s.p99 * 1e3}, {"max", s.max * 1e3}};
}

// Buckets of the histograms: under 1 ms, then [2^(i-1), 2^i) ms.
nlohmann::ordered_json ages_json(const AgeHistogram& ages) {
  return {{"count", ages.count()}, {"mean", ages.mean_seconds()}, {"p50", ages.quantile_seconds(0.5)}, {"p99", ages.quantile_seconds(0.99)}, {"buckets", ages.buckets()}};
}

nlohmann::ordered_json prefix_json(const PrefixCacheStats& p) {
  return {{"queries", p.queries}, {"query_tokens", p.query_tokens}, {"hit_tokens", p.hit_tokens}, {"stored_blocks", p.stored_blocks}, {"erased_blocks", p.erased_blocks},
          {"block_lifetime_seconds", ages_json(p.lifetime)}, {"block_idle_seconds", ages_json(p.idle)}, {"reuse_gap_seconds", ages_json(p.reuse_gap)}};
}

void print_json(const LoadMetrics& m, const ReplayFlags& flags, const EngineStats& stats) {
  nlohmann::ordered_json out = {{"trace", flags.load.path}, {"model", flags.model.path}, {"requests", m.requests}, {"completed", m.completed}, {"failed", m.failed},
                                {"seconds", m.seconds}, {"prompt_tokens", m.prompt_tokens}, {"cached_tokens", m.cached_tokens}, {"output_tokens", m.output_tokens},
                                {"request_throughput", m.request_rate}, {"output_throughput", m.output_rate}, {"total_token_throughput", m.total_rate},
                                {"ttft_ms", in_ms(m.ttft)}, {"tpot_ms", in_ms(m.tpot)}, {"itl_ms", in_ms(m.itl)}, {"e2el_ms", in_ms(m.e2e)}, {"lag_ms", in_ms(m.lag)},
                                {"steps", stats.steps}, {"errors", m.errors}, {"prefix_cache", prefix_json(stats.prefix)}};
  if (flags.limits.any()) out["goodput"] = {{"requests_per_second", m.goodput}, {"good_requests", m.good}, {"ttft_ms", flags.ttft_ms}, {"tpot_ms", flags.tpot_ms}, {"e2el_ms", flags.e2e_ms}};
  print_json_line(out);
}

void print_prefix(const PrefixCacheStats& p) {
  if (p.queries == 0) return;
  fmt::print("prefix cache: {} lookups, {} of {} tokens found; {} blocks stored, {} dropped", p.queries, p.hit_tokens, p.query_tokens, p.stored_blocks, p.erased_blocks);
  if (p.erased_blocks > 0) fmt::print(" after {:.1f} s, {:.1f} s of them unused", p.lifetime.mean_seconds(), p.idle.mean_seconds());
  if (p.reuse_gap.count() > 0) fmt::print("; used again after {:.1f} s (p99 {:.1f} s)", p.reuse_gap.mean_seconds(), p.reuse_gap.quantile_seconds(0.99));
  fmt::print("\n");
}

void print_row(const char* name, const Summary& s) {
  fmt::print("  {:<6} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f} {:>11.2f}\n", name, s.mean * 1e3, s.p50 * 1e3, s.p90 * 1e3, s.p99 * 1e3, s.max * 1e3);
}

void print_text(const LoadMetrics& m, const ReplayFlags& flags) {
  fmt::print("{} requests done, {} failed, in {:.2f} s\n", m.completed, m.failed, m.seconds);
  for (const auto& [text, count] : m.errors) fmt::print("  {} x {}\n", count, text);
  fmt::print("{:.3f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s with prompts; {} of {} prompt tokens from the prefix cache\n", m.request_rate, m.output_rate, m.total_rate, m.cached_tokens, m.prompt_tokens);
  if (flags.limits.any()) fmt::print("goodput {:.3f} requests/s: {} of {} requests within the limits\n", m.goodput, m.good, m.requests);
  fmt::print("\n  {:<6} {:>11} {:>11} {:>11} {:>11} {:>11}   milliseconds\n", "", "mean", "p50", "p90", "p99", "max");
  print_row("TTFT", m.ttft);
  print_row("TPOT", m.tpot);
  print_row("ITL", m.itl);
  print_row("E2E", m.e2e);
  if (m.lag.p99 > 0.01) fmt::print("  requests went out up to {:.1f} ms late\n", m.lag.max * 1e3);
}

Result<void> write_report(const ReplayFlags& flags, const EngineOptions& options, std::span<const RequestRecord> records, const LoadMetrics& m) {
  ReportFacts facts;
  facts.title = fmt::format("{} on {}", flags.load.path, flags.model.path.empty() ? "the built-in model" : flags.model.path);
  facts.settings = {{"load", flags.closed_loop ? fmt::format("closed loop, {} in flight", flags.closed_loop) : std::string("open loop")},
                    {"streams", fmt::format("{}", options.max_streams)}, {"batch tokens", fmt::format("{}", options.batch_tokens)},
                    {"prefix cache", options.prefix_cache ? options.prefix_evict : "off"}};
  const std::string html = replay_report_html(facts, records, m);
  std::FILE* file = std::fopen(flags.report.c_str(), "wb");
  const bool written = file && std::fwrite(html.data(), 1, html.size(), file) == html.size();
  if ((file && std::fclose(file) != 0) || !written) return Error::user(fmt::format("{}: cannot be written", flags.report));
  return {};
}

Result<int> run(ReplayFlags flags) {
  if (!flags.in_process) return Error::user("replay: give --in-process: the load goes to an engine in this process");
  MILLRACE_TRY(const auto load, flags.load.load());
  MILLRACE_TRY(const auto model, flags.model.load());
  EngineOptions options = flags.engine.get(flags.model);
  options.max_streams = flags.max_streams;
  options.queue = flags.queue;
  MILLRACE_TRY(auto engine, Engine::create(model, options));
  flags.limits = {flags.ttft_ms / 1e3, flags.tpot_ms / 1e3, flags.e2e_ms / 1e3};
  catch_interrupts();
  std::vector<RequestRecord> records;
  {
    ProgressBar bar("replaying");
    records = run_replay(*engine, load, {flags.closed_loop, flags.patience, model->info().vocab}, [&](int64_t done, int64_t in_flight) {
      bar.update(static_cast<double>(done) / static_cast<double>(load.size()), fmt::format("{} done, {} in flight", done, in_flight));
      return !interrupted();
    });
  }
  const LoadMetrics metrics = measure_load(records, flags.limits);
  if (flags.json) print_json(metrics, flags, engine->stats());
  else print_text(metrics, flags), print_prefix(engine->stats().prefix);
  if (!flags.report.empty()) MILLRACE_TRY_VOID(write_report(flags, options, records, metrics));
  if (interrupted()) return 130;
  return metrics.completed > 0 ? 0 : 1;
}

}  // namespace

void add_replay_command(CLI::App& app) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = add_command(app, "replay", "Send a recorded or generated load to an engine and measure it", kExamples, [=] { return run(*flags); });
  flags->load.add_to(command, "--trace");
  command->add_flag("--in-process", flags->in_process, "To an engine in this process");
  flags->model.add_to(command);
  flags->engine.add_to(command);
  command->add_option("--max-streams", flags->max_streams, "Streams that run at once")->capture_default_str()->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--queue", flags->queue, "Requests that may wait; more are refused")->capture_default_str()->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  command->add_option("--closed-loop", flags->closed_loop, "So many requests in flight all the time; arrivals do not count")->check(CLI::Range(int64_t{1}, int64_t{65536}));
  command->add_option("--patience", flags->patience, "Cancel what takes longer than so many seconds")->check(CLI::Range(0.001, 1e9));
  command->add_option("--good-ttft", flags->ttft_ms, "Goodput: time to first token of at most so many ms")->check(CLI::Range(0.0, 1e12));
  command->add_option("--good-tpot", flags->tpot_ms, "Goodput: time per output token of at most so many ms")->check(CLI::Range(0.0, 1e12));
  command->add_option("--good-e2e", flags->e2e_ms, "Goodput: whole request within so many ms")->check(CLI::Range(0.0, 1e12));
  command->add_option("--report", flags->report, "Write an HTML file with the figures over time");
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
