// millrace simulate: runs a load through the engine's scheduler, memory management and prefix index on a virtual clock.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "base/ordered_json.h"
#include "base/philox.h"
#include "command.h"
#include "durations.h"
#include "input.h"
#include "interrupt.h"
#include "picture_flags.h"
#include "progress.h"
#include "run/executors/simulated_executor.h"
#include "run/plan/kv_places.h"
#include "simulate/simulation.h"
#include "simulate_picture.h"
#include "table_room.h"
#include "use_flag.h"
#include "workload/metrics.h"
#include "workload_flags.h"

namespace millrace {
namespace {

constexpr const char* kSimulateExamples = R"(Examples:
  millrace simulate --trace conversation_trace.jsonl --cost llama3-70b-8xa800 --policy stall_free:tbt_ms=100
  millrace simulate --trace gen:requests=500,rate=4 --cost llama-7b-a100 --kv-tokens 65536 --policy fcfs --policy skip_join_mlfq
  millrace simulate --trace load.csv --cost measured.json --tenants 1,3 --policy vtc --json
  millrace simulate --trace conversation_trace.jsonl --cost llama3-70b-8xa800 --nodes 10 --route prefix
Several policies run one after the other on the same load, one output line each. See --cost for the built-in machines.)";

struct SimulateFlags {
  WorkloadFlags load;
  std::vector<std::string> policies = {"fcfs"};
  std::string cost = "llama3-70b-8xa800";
  EngineOptions options;
  GoodputLimits limits;
  std::vector<double> tenants;  // shares of the requests
  int64_t max_tokens = 0, nodes = 1;
  std::string route = "in_turn";
  double deadline = 0, time_limit = 0, stop = 0;
  SimulatedModel model;
  bool no_prefix_cache = false, json = false, wide = false;
  PictureFlags picture;
  UseFlag use;
  CLI::Option* policy_option = nullptr;
  CLI::Option* evictor_option = nullptr;
  CLI::Option* kv_format_option = nullptr;
};

constexpr size_t kMaxReasons = 8;  // of refusals, that are printed

// The figures of one run.
struct Figures {
  std::string policy;
  int64_t completed = 0, refused = 0, unfinished = 0, good = 0, output_tokens = 0, prompt_tokens = 0, cached_tokens = 0;
  int64_t without_output = 0;               // of the trace: simulated with one token
  std::map<std::string, int64_t> refusals;  // requests by reason
  int64_t unsupported = 0;                  // of those refused
  Summary ttft, tbt, e2e, worst_gap;
  SimulatedTimes times;  // for the picture
  SimulationResult result;
  double wall_seconds = 0;
};

Request make_request(const WorkloadRequest& from, const SimulateFlags& flags) {
  Request request;
  request.prompt = make_prompt(from, kSimulatedVocab);
  request.documents = prompt_documents(from);
  request.known_tokens = std::max<int64_t>(1, from.output_tokens);
  request.max_tokens = std::max(request.known_tokens, flags.max_tokens);
  request.deadline_seconds = flags.deadline;
  request.time_limit_seconds = flags.time_limit;
  request.sampling.seed = from.id;
  request.tenant = from.tenant;
  if (!flags.tenants.empty()) {
    double sum = 0, place = philox_uniform(flags.load.seed, 77, from.id);
    for (double share : flags.tenants) sum += share;
    size_t tenant = 0;
    while (tenant + 1 < flags.tenants.size() && place >= flags.tenants[tenant] / sum)
      place -= flags.tenants[tenant++] / sum;
    request.tenant = fmt::format("tenant{}", tenant + 1);
  }
  return request;
}

Figures judge(std::string policy, SimulationResult result, const GoodputLimits& limits) {
  Figures f;
  f.policy = std::move(policy);
  std::vector<double> ttft, e2e, worst, gaps(result.gaps.begin(), result.gaps.end());
  for (const SimulatedRequest& r : result.requests) {
    if (r.finish == FinishReason::error) {
      ++f.refused;
      ++f.refusals[r.refused];
      f.unsupported += r.refusal == ErrorKind::unsupported;
    } else if (r.finish == FinishReason::none)
      ++f.unfinished;
    if (r.finish != FinishReason::stop && r.finish != FinishReason::length) continue;
    ++f.completed;
    f.output_tokens += r.generated_tokens;
    f.prompt_tokens += r.prompt_tokens;
    f.cached_tokens += r.cached_tokens;
    ttft.push_back(r.first_token - r.arrival);
    e2e.push_back(r.end - r.arrival);
    if (r.generated_tokens > 1) worst.push_back(r.worst_gap);
    const double tpot =
        r.generated_tokens > 1 ? (r.end - r.first_token) / static_cast<double>(r.generated_tokens - 1) : 0;
    const bool good = (limits.ttft == 0 || ttft.back() <= limits.ttft) &&
                      (limits.e2e == 0 || e2e.back() <= limits.e2e) && (limits.tpot == 0 || tpot <= limits.tpot);
    f.good += good;
  }
  f.times = {f.policy, ttft, gaps, e2e, static_cast<double>(f.output_tokens) / std::max(result.seconds, 1e-9)};
  f.ttft = summarize(std::move(ttft));
  f.e2e = summarize(std::move(e2e));
  f.tbt = summarize(std::move(gaps));
  f.worst_gap = summarize(std::move(worst));
  f.result = std::move(result);
  return f;
}

nlohmann::ordered_json summary_json(const Summary& s) {
  return {{"mean", s.mean}, {"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}, {"max", s.max}};
}

// The reasons of most refused requests, the most frequent first: some have numbers of their own for every request.
std::vector<std::pair<std::string, int64_t>> common_refusals(const Figures& f) {
  std::vector<std::pair<std::string, int64_t>> out(f.refusals.begin(), f.refusals.end());
  std::ranges::stable_sort(out, std::greater(), &std::pair<std::string, int64_t>::second);
  if (out.size() > kMaxReasons) out.resize(kMaxReasons);
  return out;
}

nlohmann::ordered_json to_json(const Figures& f) {
  const SimulationResult& r = f.result;
  nlohmann::ordered_json out;
  out["policy"] = f.policy;
  out["requests"] = r.requests.size();
  out["completed"] = f.completed;
  out["refused"] = f.refused;
  if (f.refused > 0) {
    out["refusals"] = nlohmann::ordered_json::array();
    for (const auto& [reason, requests] : common_refusals(f))
      out["refusals"].push_back({{"reason", reason}, {"requests", requests}});
  }
  out["unfinished"] = f.unfinished;
  out["seconds"] = r.seconds;
  out["busy_seconds"] = r.busy_seconds;
  out["steps"] = r.stats.steps;
  out["ttft_seconds"] = summary_json(f.ttft);
  out["tbt_seconds"] = summary_json(f.tbt);
  out["worst_gap_seconds"] = summary_json(f.worst_gap);
  out["e2e_seconds"] = summary_json(f.e2e);
  out["output_tokens_per_second"] = r.seconds > 0 ? static_cast<double>(f.output_tokens) / r.seconds : 0.0;
  out["goodput_requests_per_second"] = r.seconds > 0 ? static_cast<double>(f.good) / r.seconds : 0.0;
  out["without_output"] = f.without_output;
  out["output_tokens"] = f.output_tokens;
  out["prompt_tokens"] = f.prompt_tokens;
  out["cached_tokens"] = f.cached_tokens;
  out["kv_ssd_tokens_loaded"] = r.stats.store.hit_tokens;
  if (const StateCacheStats& copies = r.stats.state_cache; copies.slots > 0)
    out["state_copies"] = {{"slots", copies.slots},       {"held", copies.held},       {"stored", copies.stored},
                           {"replaced", copies.replaced}, {"evicted", copies.evicted}, {"hits", copies.hits}};
  out["preemptions"] = r.stats.preemptions;
  out["recomputed_tokens"] = r.stats.recomputed_tokens;
  out["swapped_out_tokens"] = r.stats.swapped_out_tokens;
  out["evicted_tokens"] = r.stats.evicted_tokens;
  out["kv_blocks"] = r.stats.kv_blocks;
  out["streams_held"] = {{"mean", r.mean_running}, {"most", r.most_running}};
  out["fairness"] = {{"backlogged_seconds", r.fairness.backlogged_seconds},
                     {"service_difference", r.fairness.difference},
                     {"service", r.fairness.service}};
  if (r.nodes.size() > 1) {
    for (const SimulatedNode& node : r.nodes)
      out["nodes"].push_back({{"requests", node.requests},
                              {"completed", node.completed},
                              {"prompt_tokens", node.prompt_tokens},
                              {"cached_tokens", node.cached_tokens},
                              {"output_tokens", node.output_tokens},
                              {"busy_seconds", node.busy_seconds},
                              {"steps", node.stats.steps},
                              {"preemptions", node.stats.preemptions},
                              {"streams_held", {{"mean", node.mean_running}, {"most", node.most_running}}}});
  }
  out["wall_seconds"] = f.wall_seconds;
  return out;
}

std::string percent_text(int64_t part, int64_t whole) {
  return fmt::format("{:.1f} %", whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
}

void print_nodes(const Figures& f, const TableRoom& room) {
  const SimulationResult& r = f.result;
  if (r.nodes.size() < 2) return;
  TextTable table(TableLook::markdown, {{.name = f.policy + ": node"},
                                        {.name = "requests", .drops = 7},
                                        {.name = "done", .drops = 6},
                                        {.name = "prompt tokens", .drops = 2},
                                        {.name = "cached", .drops = 5},
                                        {.name = "output tok/s", .drops = 4},
                                        {.name = "busy"},
                                        {.name = "preempted", .drops = 3},
                                        {.name = "held mean / most", .drops = 1}});
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    const SimulatedNode& node = r.nodes[i];
    table.add({fmt::format("{}", i), fmt::format("{}", node.requests), fmt::format("{}", node.completed),
               fmt::format("{}", node.prompt_tokens), percent_text(node.cached_tokens, node.prompt_tokens),
               fmt::format("{:.0f}", static_cast<double>(node.output_tokens) / std::max(r.seconds, 1e-9)),
               fmt::format("{:.1f} %", 100 * node.busy_seconds / std::max(r.seconds, 1e-9)),
               fmt::format("{}", node.stats.preemptions),
               fmt::format("{:.1f} / {}", node.mean_running, node.most_running)});
  }
  fmt::print("\n{}", table.text(room));
}

TextTable::Row figures_row(const Figures& f) {
  const SimulationResult& r = f.result;
  const double seconds = std::max(r.seconds, 1e-9);
  return {f.policy,
          fmt::format("{}", f.completed),
          fmt::format("{}", f.refused + f.unfinished),
          fmt::format("{:.2f} / {:.2f} / {:.2f}", f.ttft.mean, f.ttft.p50, f.ttft.p99),
          fmt::format("{:.1f} / {:.1f} / {:.0f}", f.tbt.p50 * 1e3, f.tbt.p99 * 1e3, f.tbt.max * 1e3),
          fmt::format("{:.2f} / {:.2f} / {:.2f}", f.e2e.mean, f.e2e.p50, f.e2e.p99),
          fmt::format("{:.0f}", static_cast<double>(f.output_tokens) / seconds),
          fmt::format("{:.3f}", static_cast<double>(f.good) / seconds),
          percent_text(f.cached_tokens, f.prompt_tokens),
          fmt::format("{}", r.stats.preemptions),
          fmt::format("{:.1f} / {}", r.mean_running, r.most_running)};
}

// `tenants`: the load has several tenants.
std::vector<TableColumn> figures_columns(bool tenants) {
  std::vector<TableColumn> columns = {{.name = "policy", .left = true},
                                      {.name = "done", .drops = 5},
                                      {.name = "refused", .drops = 4},
                                      {.name = "TTFT mean / p50 / p99 s"},
                                      {.name = "TBT p50 / p99 / max ms", .drops = 8},
                                      {.name = "E2E mean / p50 / p99 s", .drops = 6},
                                      {.name = "output tok/s", .drops = 9},
                                      {.name = "good req/s", .drops = 7},
                                      {.name = "cached", .drops = 3},
                                      {.name = "preempted", .drops = 2},
                                      {.name = "held mean / most", .drops = 1}};
  if (tenants) columns.push_back({.name = "service difference", .drops = 10});
  return columns;
}

void print_table(const std::vector<Figures>& all, const TableRoom& room) {
  const bool tenants = std::ranges::any_of(all, [](const Figures& f) { return f.result.fairness.service.size() > 1; });
  TextTable table(TableLook::markdown, figures_columns(tenants));
  for (const Figures& f : all) {
    TextTable::Row row = figures_row(f);
    if (tenants) row.push_back(fmt::format("{:.0f}", f.result.fairness.difference));
    table.add(std::move(row));
  }
  fmt::print("{}", table.text(room));
  for (const Figures& f : all) print_nodes(f, room);
  for (const Figures& f : all)
    for (const auto& [reason, requests] : common_refusals(f))
      fmt::print(stderr, "{}: {} requests refused: {}\n", f.policy, requests, reason);
  double wall = 0, virtual_seconds = 0;
  for (const Figures& f : all) wall += f.wall_seconds, virtual_seconds += f.result.seconds;
  fmt::print(stderr, "{:.0f} virtual seconds in {:.1f} s\n", virtual_seconds, wall);
  if (all.front().without_output > 0)
    fmt::print(stderr, "{} requests of the trace have no output; they are simulated with one token\n",
               all.front().without_output);
}

// One run for each policy to compare, with the choices of --use.
Result<std::vector<EngineOptions>> list_runs(const SimulateFlags& flags) {
  MILLRACE_TRY(const auto uses, flags.use.get());
  std::vector<EngineOptions> out;
  for (const std::string& policy : flags.policies) {
    if (flags.policy_option->count() > 0)
      MILLRACE_TRY_VOID(check_flag_against(uses, "policy", "--policy", policy, flags.use.command));
    if (flags.evictor_option->count() > 0)
      MILLRACE_TRY_VOID(check_flag_against(uses, "evictor", "--evictor", flags.options.evictor, flags.use.command));
    if (flags.kv_format_option->count() > 0)
      MILLRACE_TRY_VOID(
          check_flag_against(uses, "kv_format", "--kv-format", flags.options.kv_format, flags.use.command));
    out.push_back(flags.options);
    out.back().policy = policy;
    auto done = apply_uses(uses, out.back());
    if (!done.ok()) return Error{done.error().kind, "--use " + done.error().message};
  }
  return out;
}

Result<int> run(SimulateFlags flags) {
  MILLRACE_TRY_VOID(list_runs(flags));
  MILLRACE_TRY_VOID(flags.picture.check());
  MILLRACE_TRY(auto requests, flags.load.load());
  if (requests.empty()) return Error::user("trace: contains no requests");
  EngineOptions& options = flags.options;
  for (const WorkloadRequest& r : requests)
    options.context = std::max(
        {options.context, r.prompt_tokens + std::max(r.output_tokens, flags.max_tokens) + 1, options.block_tokens});
  options.queue = 1 << 24;
  options.prefix_cache = !flags.no_prefix_cache;
  SimulatedLoad load;
  load.requests = static_cast<int64_t>(requests.size());
  load.arrival_seconds = [&](int64_t i) { return requests[static_cast<size_t>(i)].arrival_seconds; };
  load.request = [&](int64_t i) { return make_request(requests[static_cast<size_t>(i)], flags); };
  MILLRACE_TRY(const SimulatedRoute route, find_simulated_route(flags.route));
  catch_interrupts();
  std::vector<Figures> all;
  MILLRACE_TRY(const auto runs, list_runs(flags));
  for (const EngineOptions& one : runs) {
    std::vector<std::unique_ptr<CostModel>> costs;
    for (int64_t node = 0; node < flags.nodes; ++node) {
      MILLRACE_TRY(auto cost, load_cost_model(flags.cost));
      costs.push_back(std::move(cost));
    }
    const auto start = std::chrono::steady_clock::now();
    ProgressBar bar(one.policy);
    MILLRACE_TRY(auto result,
                 simulate(load, std::move(costs), one,
                          {.route = route, .stop_seconds = flags.stop, .model = flags.model}, [&](int64_t ended) {
                            bar.update(static_cast<double>(ended) / static_cast<double>(load.requests));
                            return !interrupted();
                          }));
    all.push_back(judge(one.policy, std::move(result), flags.limits));
    all.back().without_output = std::ranges::count(requests, 0, &WorkloadRequest::output_tokens);
    all.back().wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (flags.json) {
    auto out = nlohmann::ordered_json::array();
    for (const Figures& f : all) out.push_back(to_json(f));
    print_json_line(out);
  } else {
    print_table(all, table_room(flags.wide, "--json"));
  }
  if (flags.picture.wanted()) {
    std::vector<SimulatedTimes> times;
    for (Figures& f : all) times.push_back(std::move(f.times));
    MILLRACE_TRY_VOID(flags.picture.write(
        simulation_chart(fmt::format("{} on {}", flags.load.path, flags.cost), load.requests, std::move(times))));
  }
  const bool none_can_run = std::ranges::any_of(
      all, [](const Figures& f) { return f.unsupported > 0 && f.unsupported == std::ssize(f.result.requests); });
  return none_can_run ? exit_code(ErrorKind::unsupported) : 0;
}

}  // namespace

void add_simulate_command(CLI::App& app) {
  auto flags = std::make_shared<SimulateFlags>();
  EngineOptions& options = flags->options;
  options.max_streams = 256;
  options.kv_tokens = 1'000'000;
  options.batch_tokens = 2048;
  CLI::App* command = add_command(app, "simulate", "Run a load through the scheduler on a virtual clock",
                                  kSimulateExamples, [=] { return run(*flags); });
  flags->load.add_to(command, "--trace");
  const auto seconds = CLI::Range(0.0, 1e9);
  flags->policy_option =
      command
          ->add_option("--policy", flags->policies,
                       "Scheduling policy NAME[:key=value,...]; repeatable (see millrace techniques --family policy)")
          ->capture_default_str()
          ->allow_extra_args(false);
  flags->use.add_to(command, "simulate");
  command
      ->add_option(
          "--cost", flags->cost,
          "Cost model: a JSON file, or llama3-70b-8xa800, llama-7b-a100, opt-13b-a100, mistral-7b-a100, llama-7b-a10, "
          "llama-7b-a10-2epyc, llama-7b-a10-4epyc or opt-13b-a100-4epyc")
      ->capture_default_str();
  command
      ->add_option("--nodes", flags->nodes,
                   "Engines behind one router, each with the memory and cache given by the other flags")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  command
      ->add_option(
          "--route", flags->route,
          "Routing of requests: in_turn, prefix (to a node that has at least half of the prompt) or least_loaded")
      ->capture_default_str();
  command->add_option("--kv-tokens", options.kv_tokens, "KV cache size in tokens of F16")->capture_default_str();
  command
      ->add_option(
          "--document-tokens", options.document_tokens,
          "Tokens of documents that are kept as rows next to a KV format that encodes whole blocks; 0: as many "
          "as the longest stream has")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  flags->kv_format_option =
      command
          ->add_option("--kv-format", options.kv_format,
                       "KV format NAME[:key=value,...]: all sizes in tokens, and the cost model, are for f16")
          ->capture_default_str();
  command
      ->add_option(
          "--kv-heads", flags->model.kv_heads,
          "KV heads of a layer of the simulated model, for evictors and attention patterns that differ by head")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  command
      ->add_option("--layers", flags->model.layers,
                   "Layers of the simulated model, for evictors and attention patterns that differ by layer")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  command->add_option("--block-tokens", options.block_tokens, "Tokens per KV block")->capture_default_str();
  command
      ->add_option("--window", flags->model.window,
                   "Keys that every layer of the simulated model sees, so that streams give back older blocks; 0: all")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--state-bytes", flags->model.state_bytes,
                   "Bytes of a stream's recurrent states in the simulated model, such as 20M (millrace inspect shows a "
                   "model's); 0: no layer is recurrent")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--state-cache", options.state_cache_bytes,
                   "Memory for copies of those states in the prefix cache; default: two for each stream, at most 1 GiB")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--state-stride", options.state_stride,
                   "Copies are at multiples of this number of tokens, and of a KV block")
      ->capture_default_str();
  command->add_option("--batch-tokens", options.batch_tokens, "Most tokens in one step")->capture_default_str();
  command->add_option("--max-streams", options.max_streams, "Most streams in one step")->capture_default_str();
  command->add_option("--resident-streams", options.resident_streams,
                      "Most streams that hold KV blocks; 0: --max-streams");
  command
      ->add_option_function<int64_t>(
          "--swap-tokens", [=](int64_t tokens) { flags->options.kv_tier = memory_tier(tokens); },
          "Host memory for swapping out preempted streams, in tokens")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command
      ->add_option_function<int64_t>(
          "--kv-ssd-tokens",
          [=](int64_t tokens) {
            flags->options.kv_store = tokens > 0 ? SsdStoreFlags{"simulated", tokens}.text() : "";
          },
          "Disk space for blocks evicted from the prefix cache, in tokens; its speed is the cost model's "
          "disk_bandwidth")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("-c,--context", options.context, "Longest stream; at least what the load needs");
  flags->evictor_option =
      command->add_option("--evictor", options.evictor,
                          "Drop keys and values of running streams, NAME[:key=value,...]; not by a checkpoint's gates");
  command->add_flag("--no-prefix-cache", flags->no_prefix_cache, "Compute every prompt completely");
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "max_tokens of every request, which ends earlier at its true length; 0: its true length")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24));
  command->add_option("--tenants", flags->tenants, "Assign requests to tenants in these proportions: 1,3")
      ->delimiter(',')
      ->check(CLI::Range(1e-9, 1e9));
  command->add_option("--deadline", flags->deadline, "Deadline of every request, from its arrival")
      ->transform(as_seconds())
      ->check(seconds);
  command->add_option("--time-limit", flags->time_limit, "End requests after this time")
      ->transform(as_seconds())
      ->check(seconds);
  command->add_option("--stop", flags->stop, "Stop at this virtual time; 0: when all requests are done")
      ->transform(as_seconds())
      ->check(seconds);
  add_goodput_limits(command, flags->limits);
  command->add_option("--record-plans", options.record_plans, "Log every step's plan to this file, one per line");
  flags->picture.add_to(command, "the distributions of the times, and the output, of each policy");
  command->add_flag("--json", flags->json, "Print a JSON array with one object per policy");
  add_wide_to(command, &flags->wide, figures_columns(true));
}

}  // namespace millrace
