// millrace trace: statistics of a recorded or generated load, and the hit ratio of a prefix cache on it. Needs no
// model.
#include <fmt/format.h>

#include <charconv>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "workload/cache_model.h"
#include "workload/trace_stats.h"
#include "workload_flags.h"

namespace millrace {
namespace {

constexpr const char* kTraceExamples = R"(Examples:
  millrace trace stats conversation_trace.jsonl.xz       lengths, arrivals and reuse of prefixes
  millrace trace stats gen:requests=5000,rate=8,arrivals=gamma,burstiness=0.3
  millrace trace cache conversation_trace.jsonl.xz --policy lru,lfu,length_aware --capacity 1000,10000,unlimited
  millrace trace cache conversation_trace.jsonl.xz --capacity 5000 --nodes 10     caches per node and a global one)";

constexpr const char* kStatsExamples = R"(Examples:
  millrace trace stats conversation_trace.jsonl.xz
  millrace trace stats gen:requests=5000,rate=8 --json)";

constexpr const char* kCacheExamples = R"(Examples:
  millrace trace cache conversation_trace.jsonl.xz --policy lru,lfu --capacity 1000,unlimited

A block is 512 tokens in Mooncake traces and --block-tokens in traces with text or token ids. A request is looked up and
then stored at the time of its arrival. With --nodes N, each node has a cache of --capacity blocks. Requests go to the
nodes in turn, or with --route prefix to a node that has at least half of the prompt, else to the least loaded node. The
global cache has the capacity of all nodes together.)";

struct TraceFlags {
  WorkloadFlags load;
  int64_t block_tokens = 16, nodes = 1;
  std::vector<std::string> policies, capacities;
  std::string route = "in_turn";
  bool json = false;
};

nlohmann::ordered_json to_json(const Summary& s) {
  return {{"mean", s.mean}, {"min", s.min}, {"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}, {"max", s.max}};
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

nlohmann::ordered_json to_json(const TraceStats& s) {
  nlohmann::ordered_json out = {{"requests", s.requests},
                                {"without_output", s.without_output},
                                {"sessions", s.sessions},
                                {"tenants", s.tenants},
                                {"prompt_tokens", to_json(s.prompt_tokens)},
                                {"output_tokens", to_json(s.output_tokens)},
                                {"total_prompt_tokens", s.total_prompt},
                                {"total_output_tokens", s.total_output}};
  const ArrivalStats& a = s.arrivals;
  out["arrivals"] = {{"seconds", a.seconds},         {"rate", a.rate},
                     {"gap_cv", a.gap_cv},           {"dispersion_10s", a.dispersion},
                     {"peak_rate_10s", a.peak_rate}, {"gap_seconds", to_json(a.gap_seconds)}};
  const ReuseStats& r = s.reuse;
  if (r.block_tokens == 0) return out;
  out["reuse"] = {{"block_tokens", r.block_tokens},
                  {"blocks", r.blocks},
                  {"distinct_blocks", r.distinct_blocks},
                  {"hit_blocks", r.hit_blocks},
                  {"hit_tokens", r.hit_tokens},
                  {"ratio_blocks", ratio(r.hit_blocks, r.blocks)},
                  {"ratio_tokens", ratio(r.hit_tokens, r.tokens)},
                  {"ratio_tokens_expected", ratio(r.hit_tokens_expected, r.tokens)},
                  {"ratio_tokens_at_most", ratio(r.hit_tokens_at_most, r.tokens)},
                  {"mean_request_ratio_blocks", r.mean_request_blocks},
                  {"mean_request_ratio_tokens", r.mean_request_tokens},
                  {"requests_with_hit", r.requests_with_hit},
                  {"reused_blocks", r.reused_blocks},
                  {"most_uses", r.most_uses},
                  {"gap_seconds", to_json(r.gap_seconds)},
                  {"gap_requests", to_json(r.gap_requests)}};
  return out;
}

void print_row(const char* name, const Summary& s, int digits) {
  fmt::print("  {:<18} {:>11.{}f} {:>11.{}f} {:>11.{}f} {:>11.{}f} {:>11.{}f}\n", name, s.mean, digits, s.p50, digits,
             s.p90, digits, s.p99, digits, s.max, digits);
}

void print_reuse(const ReuseStats& r) {
  fmt::print("\nprefixes, in blocks of {} tokens, with an unlimited cache\n", r.block_tokens);
  fmt::print("  {} blocks, {} distinct; {} of those are reused, one of them {} times\n", r.blocks, r.distinct_blocks,
             r.reused_blocks, r.most_uses);
  fmt::print("  hits               {:6.2f} % of the blocks, {:.2f} % of the tokens\n",
             100 * ratio(r.hit_blocks, r.blocks), 100 * ratio(r.hit_tokens, r.tokens));
  fmt::print("  token by token     {:6.2f} % of the tokens, assuming half a block more per request; {:.2f} % at most\n",
             100 * ratio(r.hit_tokens_expected, r.tokens), 100 * ratio(r.hit_tokens_at_most, r.tokens));
  fmt::print("  mean over requests {:6.2f} % of the blocks, {:.2f} % of the tokens; {} requests have hits\n",
             100 * r.mean_request_blocks, 100 * r.mean_request_tokens, r.requests_with_hit);
  print_row("gap, seconds", r.gap_seconds, 1);
  print_row("gap, requests", r.gap_requests, 0);
}

Result<int> run_stats(const TraceFlags& flags) {
  MILLRACE_TRY(const auto requests, flags.load.load());
  const TraceStats s = trace_stats(requests, flags.block_tokens);
  if (flags.json) {
    print_json_line(to_json(s));
    return 0;
  }
  const ArrivalStats& a = s.arrivals;
  fmt::print("{} requests in {:.1f} s, {:.3f} per second; busiest 10 s: {:.1f} per second\n", s.requests, a.seconds,
             a.rate, a.peak_rate);
  if (s.sessions || s.tenants) fmt::print("{} sessions, {} tenants\n", s.sessions, s.tenants);
  if (s.without_output) fmt::print("{} requests have no output\n", s.without_output);
  fmt::print(
      "gaps: coefficient of variation {:.2f}; arrivals in 10 s: variance {:.2f} times the mean (Poisson: 1 and 1)\n\n",
      a.gap_cv, a.dispersion);
  fmt::print("  {:<18} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "", "mean", "p50", "p90", "p99", "max");
  print_row("prompt tokens", s.prompt_tokens, 0);
  print_row("output tokens", s.output_tokens, 0);
  print_row("gap, seconds", a.gap_seconds, 3);
  fmt::print("  {} prompt tokens and {} output tokens in total\n", s.total_prompt, s.total_output);
  if (s.reuse.block_tokens > 0) print_reuse(s.reuse);
  return 0;
}

struct CacheRow {
  const PrefixEvictor* evictor;
  int64_t capacity;  // of one node; 0: unlimited
  CacheResult local, global;
};

nlohmann::ordered_json to_json(const CacheResult& result) {
  const PrefixTreeStats& s = result.stored;
  return {{"ratio_blocks", result.block_ratio()},
          {"ratio_tokens", result.token_ratio()},
          {"hit_blocks", result.hit_blocks},
          {"hit_tokens", result.hit_tokens},
          {"load_max_over_mean", result.load_ratio},
          {"stored_blocks", s.stored},
          {"evicted_blocks", s.erased},
          {"lifetime_mean_seconds", s.lifetime.mean_seconds()},
          {"idle_mean_seconds", s.idle.mean_seconds()},
          {"reuse_gap_p50_seconds", s.reuse_gap.quantile_seconds(0.5)},
          {"reuse_gap_p99_seconds", s.reuse_gap.quantile_seconds(0.99)}};
}

Result<std::vector<CacheRow>> cache_rows(const TraceFlags& flags) {
  std::vector<CacheRow> rows;
  std::vector<const PrefixEvictor*> evictors;
  for (const std::string& name : flags.policies) {
    const PrefixEvictor* evictor = find_prefix_evictor(name);
    if (!evictor) return Error::user(fmt::format("policy: unknown '{}'; known: {}", name, prefix_evictors().names()));
    evictors.push_back(evictor);
  }
  for (const std::string& text : flags.capacities) {
    int64_t capacity = 0;
    if (text != "unlimited") {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), capacity);
      if (error != std::errc() || end != text.data() + text.size() || capacity < 1)
        return Error::user(fmt::format("capacity '{}': must be a number of blocks, or unlimited", text));
    }
    for (const PrefixEvictor* evictor : evictors) rows.push_back({evictor, capacity, {}, {}});
  }
  return rows;
}

Result<int> run_cache_study(const TraceFlags& flags) {
  MILLRACE_TRY(auto rows, cache_rows(flags));
  MILLRACE_TRY(const auto requests, flags.load.load());
  auto out = nlohmann::ordered_json::array();
  const bool several = flags.nodes > 1;
  if (!flags.json) {
    fmt::print("{} requests, {} nodes; hits in % of blocks and of tokens\n", requests.size(), flags.nodes);
    fmt::print("{:<14} {:>10} {:>9} {:>9}", "policy", "blocks", several ? "local" : "blocks", several ? "" : "tokens");
    fmt::print("{}\n", several ? fmt::format(" {:>9} {:>9} {:>9} {:>9}", "global", "", "gl/loc", "max/mean") : "");
  }
  for (CacheRow& row : rows) {
    row.local = run_cache(requests, {row.evictor, row.capacity, flags.nodes, flags.block_tokens,
                                     flags.route == "prefix" ? CacheRoute::prefix : CacheRoute::in_turn});
    if (several)
      row.global =
          run_cache(requests, {row.evictor, row.capacity * flags.nodes, 1, flags.block_tokens, CacheRoute::in_turn});
    const std::string capacity = row.capacity ? fmt::format("{}", row.capacity) : "unlimited";
    if (flags.json) {
      out.push_back({{"policy", row.evictor->name},
                     {"capacity_blocks",
                      row.capacity ? nlohmann::ordered_json(row.capacity) : nlohmann::ordered_json("unlimited")},
                     {"nodes", flags.nodes},
                     {several ? "local" : "cache", to_json(row.local)}});
      if (several) out.back()["global"] = to_json(row.global);
      continue;
    }
    fmt::print("{:<14} {:>10} {:>9.2f} {:>9.2f}", row.evictor->name, capacity, 100 * row.local.block_ratio(),
               100 * row.local.token_ratio());
    if (several) {
      fmt::print(" {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f}", 100 * row.global.block_ratio(), 100 * row.global.token_ratio(),
                 row.local.hit_blocks ? row.global.block_ratio() / row.local.block_ratio() : 0.0, row.local.load_ratio);
    }
    fmt::print("\n");
  }
  if (flags.json) print_json_line(out);
  return 0;
}

}  // namespace

void add_trace_command(CLI::App& app) {
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* command = app.add_subcommand("trace", "Analyze a recorded or generated load");
  command->footer(kTraceExamples);
  command->fallthrough();
  command->require_subcommand(1);
  flags->policies = {"lru"};
  flags->capacities = {"1000", "10000", "100000", "unlimited"};
  CLI::App* stats = add_command(*command, "stats", "Counts, lengths, arrivals and reuse of prefixes", kStatsExamples,
                                [=] { return run_stats(*flags); });
  CLI::App* cache = add_command(*command, "cache", "Hit ratio of a prefix cache by policy and capacity", kCacheExamples,
                                [=] { return run_cache_study(*flags); });
  for (CLI::App* sub : {stats, cache}) {
    flags->load.add_to(sub, "trace");
    sub->add_option("--block-tokens", flags->block_tokens, "Block size for prompts given as tokens")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, int64_t{65536}));
    sub->add_flag("--json", flags->json, "Print JSON");
  }
  cache->add_option("--policy", flags->policies, "Eviction policies, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  cache
      ->add_option("--capacity", flags->capacities,
                   "Capacities of a node's cache in blocks: numbers or unlimited, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  cache->add_option("--route", flags->route, "Routing of requests to nodes: in_turn or prefix")
      ->capture_default_str()
      ->check(CLI::IsMember({"in_turn", "prefix"}));
  cache->add_option("--nodes", flags->nodes, "Number of nodes")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
}

}  // namespace millrace
