// millrace trace: statistics of a recorded or generated load, and the hit ratio of a prefix cache on it. Needs no
// model.
#include <fmt/format.h>

#include <charconv>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "table_room.h"
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
  bool json = false, wide = false;
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

std::vector<TableColumn> summary_columns() {
  constexpr size_t kNumber = 10;
  return {{.name = "", .left = true, .width = 18},       {.name = "mean", .width = kNumber},
          {.name = "p50", .drops = 2, .width = kNumber}, {.name = "p90", .drops = 1, .width = kNumber},
          {.name = "p99", .drops = 4, .width = kNumber}, {.name = "max", .drops = 3, .width = kNumber}};
}

TextTable::Row summary_row(const char* name, const Summary& s, int digits) {
  TextTable::Row row = {name};
  for (const double value : {s.mean, s.p50, s.p90, s.p99, s.max}) row.push_back(fmt::format("{:.{}f}", value, digits));
  return row;
}

void print_reuse(const ReuseStats& r, const TableRoom& room) {
  const auto fact = [&](const char* name, const std::string& text) {
    print_fact(fmt::format("  {}", name), text, room.columns, 20);
  };
  fmt::print("\n");
  print_wrapped(fmt::format("prefixes, in blocks of {} tokens, with an unlimited cache", r.block_tokens), room.columns);
  print_wrapped(fmt::format("{} blocks, {} distinct; {} of those are reused, one of them {} times", r.blocks,
                            r.distinct_blocks, r.reused_blocks, r.most_uses),
                room.columns, 2);
  fact("hits", fmt::format("{:.2f} % of the blocks, {:.2f} % of the tokens", 100 * ratio(r.hit_blocks, r.blocks),
                           100 * ratio(r.hit_tokens, r.tokens)));
  fact("token by token",
       fmt::format("{:.2f} % of the tokens, assuming half a block more per request; {:.2f} % at most",
                   100 * ratio(r.hit_tokens_expected, r.tokens), 100 * ratio(r.hit_tokens_at_most, r.tokens)));
  fact("mean over requests",
       fmt::format("{:.2f} % of the blocks, {:.2f} % of the tokens; {} requests have hits", 100 * r.mean_request_blocks,
                   100 * r.mean_request_tokens, r.requests_with_hit));
  TextTable gaps(TableLook::plain, summary_columns());
  gaps.add(summary_row("  gap, seconds", r.gap_seconds, 1));
  gaps.add(summary_row("  gap, requests", r.gap_requests, 0));
  fmt::print("{}", gaps.text(room));
}

Result<int> run_stats(const TraceFlags& flags) {
  MILLRACE_TRY(const auto requests, flags.load.load());
  const TraceStats s = trace_stats(requests, flags.block_tokens);
  if (flags.json) {
    print_json_line(to_json(s));
    return 0;
  }
  const TableRoom room = table_room(flags.wide, "--json");
  const auto say = [&](const std::string& text) { print_wrapped(text, room.columns); };
  const ArrivalStats& a = s.arrivals;
  say(fmt::format("{} requests in {:.1f} s, {:.3f} per second; busiest 10 s: {:.1f} per second", s.requests, a.seconds,
                  a.rate, a.peak_rate));
  if (s.sessions || s.tenants) say(fmt::format("{} sessions, {} tenants", s.sessions, s.tenants));
  if (s.without_output) say(fmt::format("{} requests have no output", s.without_output));
  say(fmt::format(
      "gaps: coefficient of variation {:.2f}; arrivals in 10 s: variance {:.2f} times the mean (Poisson: 1 and 1)",
      a.gap_cv, a.dispersion));
  TextTable table(TableLook::plain, summary_columns());
  table.add(summary_row("  prompt tokens", s.prompt_tokens, 0));
  table.add(summary_row("  output tokens", s.output_tokens, 0));
  table.add(summary_row("  gap, seconds", a.gap_seconds, 3));
  fmt::print("\n{}", table.text(room));
  print_wrapped(fmt::format("{} prompt tokens and {} output tokens in total", s.total_prompt, s.total_output),
                room.columns, 2);
  if (s.reuse.block_tokens > 0) print_reuse(s.reuse, room);
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

// `several`: the requests go to several nodes.
std::vector<TableColumn> cache_columns(bool several) {
  constexpr size_t kNumber = 9;
  std::vector<TableColumn> columns = {{.name = "policy", .left = true, .width = 14}, {.name = "capacity", .width = 10}};
  if (several) {
    columns.push_back({.name = "local blocks", .width = kNumber});
    columns.push_back({.name = "local tokens", .drops = 3, .width = kNumber});
    columns.push_back({.name = "global blocks", .drops = 5, .width = kNumber});
    columns.push_back({.name = "global tokens", .drops = 4, .width = kNumber});
    columns.push_back({.name = "gl/loc", .drops = 2, .width = kNumber});
    columns.push_back({.name = "max/mean", .drops = 1, .width = kNumber});
  } else {
    columns.push_back({.name = "blocks", .width = kNumber});
    columns.push_back({.name = "tokens", .drops = 1, .width = kNumber});
  }
  return columns;
}

TextTable::Row cache_row(const CacheRow& row, bool several) {
  const auto percent = [](double part) { return fmt::format("{:.2f}", 100 * part); };
  TextTable::Row out = {std::string(row.evictor->name), row.capacity ? fmt::format("{}", row.capacity) : "unlimited",
                        percent(row.local.block_ratio()), percent(row.local.token_ratio())};
  if (!several) return out;
  out.push_back(percent(row.global.block_ratio()));
  out.push_back(percent(row.global.token_ratio()));
  out.push_back(fmt::format("{:.2f}", row.local.hit_blocks ? row.global.block_ratio() / row.local.block_ratio() : 0.0));
  out.push_back(fmt::format("{:.2f}", row.local.load_ratio));
  return out;
}

Result<int> run_cache_study(const TraceFlags& flags) {
  MILLRACE_TRY(auto rows, cache_rows(flags));
  MILLRACE_TRY(const auto requests, flags.load.load());
  auto out = nlohmann::ordered_json::array();
  const bool several = flags.nodes > 1;
  const TableRoom room = table_room(flags.wide, "--json");
  TextTable table(TableLook::plain, cache_columns(several));
  if (!flags.json) {
    print_wrapped(fmt::format("{} requests, {} nodes; capacities in blocks, hits in % of blocks and of tokens",
                              requests.size(), flags.nodes),
                  room.columns);
    fmt::print("{}", table.head(room));
  }
  for (CacheRow& row : rows) {
    row.local = run_cache(requests, {row.evictor, row.capacity, flags.nodes, flags.block_tokens,
                                     flags.route == "prefix" ? CacheRoute::prefix : CacheRoute::in_turn});
    if (several)
      row.global =
          run_cache(requests, {row.evictor, row.capacity * flags.nodes, 1, flags.block_tokens, CacheRoute::in_turn});
    if (flags.json) {
      out.push_back({{"policy", row.evictor->name},
                     {"capacity_blocks",
                      row.capacity ? nlohmann::ordered_json(row.capacity) : nlohmann::ordered_json("unlimited")},
                     {"nodes", flags.nodes},
                     {several ? "local" : "cache", to_json(row.local)}});
      if (several) out.back()["global"] = to_json(row.global);
      continue;
    }
    fmt::print("{}", table.line(cache_row(row, several)));
    std::fflush(stdout);  // the next row may take a while
  }
  if (flags.json)
    print_json_line(out);
  else
    fmt::print("{}", table.dropped_text(room));
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
  add_wide_to(stats, &flags->wide, summary_columns());
  add_wide_to(cache, &flags->wide,
              drop_order(cache_columns(false)) + "; and with several nodes: " + drop_order(cache_columns(true)));
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
