// Serializes snapshots to JSON. Long lists of small records are arrays instead of objects, because a few hundred steps
// a second are sent.
#include <algorithm>
#include <cmath>

#include "exit/exit_gate.h"
#include "run/plan/kv_places.h"
#include "server/service.h"
#include "server/telemetry/live_feed.h"
#include "techniques/families.h"

namespace millrace {
namespace {

const char* phase_name(StreamSnapshot::Phase phase) {
  switch (phase) {
    case StreamSnapshot::Phase::waiting: return "waiting";
    case StreamSnapshot::Phase::running: return "running";
    case StreamSnapshot::Phase::held_back: return "held_back";
    case StreamSnapshot::Phase::swapping_out: return "swapping_out";
    case StreamSnapshot::Phase::swapped: return "swapped";
    case StreamSnapshot::Phase::loading: return "loading";
    case StreamSnapshot::Phase::looking_up: return "looking_up";
  }
  return "";
}

// To the microsecond: further digits are noise.
double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

std::string name_of(RequestId request, int64_t answer) {
  return std::to_string(request) + (answer > 0 ? "." + std::to_string(answer) : "");
}

Json stream_json(const StreamSnapshot& s) {
  Json out = {{"id", name_of(s.request, s.answer)},
              {"phase", phase_name(s.phase)},
              {"prompt", s.prompt_tokens},
              {"computed", s.computed_tokens},
              {"cached", s.cached_tokens},
              {"generated", s.generated_tokens},
              {"blocks", s.blocks},
              {"drafted", s.drafted_tokens},
              {"accepted", s.accepted_tokens},
              {"preemptions", s.preemptions},
              {"submitted", rounded(s.submitted)},
              {"admitted", rounded(s.admitted)},
              {"first_token", rounded(s.first_token)}};
  if (s.ended > 0) out["ended"] = rounded(s.ended);
  return out;
}

Json step_json(const StepSnapshot& step) {
  Json chunks = Json::array();
  for (const ChunkSnapshot& chunk : step.chunks)
    chunks.push_back(
        {name_of(chunk.request, chunk.answer), chunk.tokens, chunk.prefill ? 1 : 0, chunk.sampled ? 1 : 0});
  return {step.number,  rounded(step.began), rounded(step.seconds), step.prefill_tokens, step.decode_tokens,
          step.streams, step.admitted,       step.preempted,        std::move(chunks)};
}

// If every cell is one block, the counts come from the snapshot itself: the engine's statistics are from another
// moment.
Json blocks_json(const EngineSnapshot& snapshot, const EngineStats& stats) {
  Json cells = Json::array();
  int64_t held = 0, cached = 0;
  for (const CellsSnapshot& run : snapshot.cells) {
    cells.push_back({run.count, run.owner, run.streams, run.cached ? 1 : 0});
    if (run.streams > 0 || run.cached) held += run.count;
    if (run.cached) cached += run.count;
  }
  const bool exact = snapshot.blocks_per_cell == 1;
  return {{"total", stats.kv_blocks},
          {"free", exact ? stats.kv_blocks - held : stats.kv_blocks_free},
          {"cached", exact ? cached : stats.kv_blocks_cached},
          {"tokens", snapshot.block_tokens},
          {"in_cell", snapshot.blocks_per_cell},
          {"cells", std::move(cells)}};
}

Json totals_json(const EngineStats& s) {
  return {{"steps", s.steps},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"generated_tokens", s.generated_tokens},
          {"preemptions", s.preemptions},
          {"recomputed_tokens", s.recomputed_tokens},
          {"swapped_out_tokens", s.swapped_out_tokens},
          {"swapped_in_tokens", s.swapped_in_tokens},
          {"prefix_query_tokens", s.prefix.query_tokens},
          {"prefix_hit_tokens", s.prefix.hit_tokens}};
}

}  // namespace

Json snapshot_json(const EngineSnapshot& snapshot, const EngineStats& stats) {
  Json streams = Json::array(), ended = Json::array(), steps = Json::array(), memory = Json::array();
  int64_t running = 0;
  for (const StreamSnapshot& stream : snapshot.streams) {
    streams.push_back(stream_json(stream));
    running += stream.phase == StreamSnapshot::Phase::running || stream.phase == StreamSnapshot::Phase::held_back;
  }
  for (const StreamSnapshot& stream : snapshot.ended) ended.push_back(stream_json(stream));
  for (const StepSnapshot& step : snapshot.steps) steps.push_back(step_json(step));
  for (const MemoryUse& use : stats.memory)
    memory.push_back({{"name", use.name}, {"bytes", use.bytes}, {"peak", use.peak}});
  Json out = {{"now", rounded(snapshot.now)},
              {"running", running},
              {"waiting", static_cast<int64_t>(snapshot.streams.size()) - running + snapshot.streams_left_out},
              {"streams", std::move(streams)},
              {"left_out", snapshot.streams_left_out},
              {"ended", std::move(ended)},
              {"steps", std::move(steps)},
              {"missed", snapshot.steps_missed},
              {"blocks", blocks_json(snapshot, stats)},
              {"totals", totals_json(stats)},
              {"swap_free_tokens", snapshot.swap_free_tokens},
              {"memory_budget", stats.memory_budget},
              {"memory", std::move(memory)}};
  if (stats.store.open) {
    const KvStoreStats& s = stats.store;
    out["store"] = {{"blocks", s.blocks},
                    {"capacity", s.capacity_blocks},
                    {"hit_tokens", s.hit_tokens},
                    {"read_bytes", s.read_bytes},
                    {"written_bytes", s.written_bytes}};
  }
  return out;
}

namespace {

// The members of the families that an engine with these options, and prompts with these passes, run with.
Json techniques_json(const EngineOptions& o, const std::vector<std::string>& prompt_passes, bool copies_states) {
  std::vector<std::pair<std::string_view, std::string>> used = {
      {"kv_format", o.kv_format},
      {"policy", o.policy},
      {"drafter", o.drafter},
      {"acceptance", o.drafter.empty() ? "" : o.acceptance},
      {"evictor", o.evictor},
      {"exit", chosen_exit(o.kernels)},
      {"tier", o.kv_tier},
      {"store", o.kv_store},
      {"prefix_evictor", o.prefix_cache ? o.prefix_evict : ""},
      {"state_evictor", copies_states ? o.state_evict : ""},
  };
  for (const std::string& pass : prompt_passes) used.emplace_back("prompt", pass);
  for (auto& [family, member] : used) member.resize(std::min(member.size(), member.find(':')));
  Json out = Json::array();
  for (const TechniqueInfo& info : all_techniques())
    if (std::ranges::find(used, std::pair(std::string_view(info.family), info.name)) != used.end())
      out.push_back(
          {{"family", info.family}, {"name", info.name}, {"summary", info.summary}, {"loss", loss_name(info.loss)}});
  return out;
}

int64_t swap_tokens(const std::string& tier) {
  const auto chosen = choose_tier(tier);
  return chosen.ok() && chosen->label == kMemoryTierLabel ? chosen->options.integer("tokens") : 0;
}

}  // namespace

Json hello_json(const Service& service, const std::string& model, const ServedModel* served) {
  const EngineOptions& o = served ? served->engine_options : service.options().engine;
  const EngineStats stats = served ? served->engine->stats() : EngineStats();
  return {{"model", model},
          {"loaded", served != nullptr},
          {"context", served ? served->context : 0},
          {"each_second", LiveFeed::kEachSecond},
          {"kv_blocks", stats.kv_blocks},
          {"kv_bytes", stats.kv_bytes},
          {"techniques",
           techniques_json(o, served && served->prompts ? served->prompts->passes() : std::vector<std::string>(),
                           stats.state_cache.slots > 0)},
          {"options",
           {{"policy", o.policy},
            {"max_streams", o.max_streams},
            {"queue", o.queue},
            {"batch_tokens", o.batch_tokens},
            {"kv_format", o.kv_format},
            {"kv_pool", o.kv_pool},
            {"prefix_cache", o.prefix_cache},
            {"prefix_evict", o.prefix_evict},
            {"swap_tokens", swap_tokens(o.kv_tier)},
            {"kv_store", !o.kv_store.empty()}}}};
}

}  // namespace millrace
