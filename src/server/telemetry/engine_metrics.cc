// The engines' own counters as metric families, labeled with the model's name.
#include "server/telemetry/metric_family.h"
#include "server/telemetry/metrics.h"

namespace millrace {
namespace {

using prometheus::MetricType;
using Value = double (*)(const EngineAccount&);

double of_blocks(const EngineStats& e, int64_t blocks) {
  return e.kv_blocks > 0 ? static_cast<double>(blocks) / static_cast<double>(e.kv_blocks) : 0;
}
double number(int64_t value) { return static_cast<double>(value); }

struct EngineFigure {
  const char* name;
  const char* help;
  MetricType type;
  Value value;
};

constexpr MetricType kGauge = MetricType::Gauge, kCounter = MetricType::Counter;

constexpr EngineFigure kFigures[] = {
    {"millrace_requests_running", "Running streams", kGauge,
     [](const EngineAccount& e) { return number(e.stats.running); }},
    {"millrace_requests_waiting", "Queued streams", kGauge,
     [](const EngineAccount& e) { return number(e.stats.waiting); }},
    {"millrace_requests_waiting_for_masks",
     "Running streams that sat out the latest step because their grammar's next mask was not ready", kGauge,
     [](const EngineAccount& e) { return number(e.stats.waiting_for_masks); }},
    {"millrace_kv_cache_usage_ratio", "Share of KV cache blocks in use by streams or the prefix cache", kGauge,
     [](const EngineAccount& e) { return of_blocks(e.stats, e.stats.kv_blocks - e.stats.kv_blocks_free); }},
    {"millrace_prefix_cache_ratio", "Share of KV cache blocks held by the prefix cache", kGauge,
     [](const EngineAccount& e) { return of_blocks(e.stats, e.stats.kv_blocks_cached); }},
    {"millrace_kv_cache_blocks", "KV cache blocks", kGauge,
     [](const EngineAccount& e) { return number(e.stats.kv_blocks); }},
    {"millrace_kv_cache_bytes", "KV cache memory", kGauge,
     [](const EngineAccount& e) { return number(e.stats.kv_bytes); }},
    {"millrace_recurrent_states", "Slots of recurrent states, or of the tails of a KV codec; 0 where there are neither",
     kGauge, [](const EngineAccount& e) { return number(e.stats.states); }},
    {"millrace_recurrent_states_free", "Of those slots, the ones that no stream holds", kGauge,
     [](const EngineAccount& e) { return number(e.stats.states_free); }},
    {"millrace_state_cache_slots", "Copies of recurrent states that the prefix cache has room for", kGauge,
     [](const EngineAccount& e) { return number(e.stats.state_cache.slots); }},
    {"millrace_state_cache_copies", "Copies of recurrent states in the prefix cache", kGauge,
     [](const EngineAccount& e) { return number(e.stats.state_cache.held); }},
    {"millrace_state_cache_bytes", "Memory of the copies that the prefix cache has room for", kGauge,
     [](const EngineAccount& e) { return number(e.stats.state_cache.slots * e.stats.state_cache.slot_bytes); }},
    {"millrace_state_copies_stored_total", "Copies of recurrent states stored in the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.state_cache.stored); }},
    {"millrace_state_copies_replaced_total", "Copies dropped because their stream stored a later one", kCounter,
     [](const EngineAccount& e) { return number(e.stats.state_cache.replaced); }},
    {"millrace_state_copies_evicted_total", "Copies dropped for other ones, or with the block before them", kCounter,
     [](const EngineAccount& e) { return number(e.stats.state_cache.evicted); }},
    {"millrace_state_copies_hits_total", "Prompts that continued from a copy of a recurrent state", kCounter,
     [](const EngineAccount& e) { return number(e.stats.state_cache.hits); }},
    {"millrace_steps_total", "Engine steps", kCounter, [](const EngineAccount& e) { return number(e.stats.steps); }},
    {"millrace_prompt_tokens_total", "Prompt tokens, computed or found in the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prompt_tokens + e.stats.cached_tokens); }},
    {"millrace_prompt_tokens_computed_total", "Computed prompt tokens", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prompt_tokens); }},
    {"millrace_prompt_tokens_cached_total", "Prompt tokens of finished answers that were found in the prefix cache",
     kCounter, [](const EngineAccount& e) { return number(e.stats.cached_tokens); }},
    {"millrace_generated_tokens_total", "Generated tokens", kCounter,
     [](const EngineAccount& e) { return number(e.stats.generated_tokens); }},
    {"millrace_drafts_total", "Steps of streams that verified a draft", kCounter,
     [](const EngineAccount& e) { return number(e.stats.drafted_at[0]); }},
    {"millrace_drafted_tokens_total", "Drafted tokens that were verified", kCounter,
     [](const EngineAccount& e) { return number(e.stats.drafted_tokens); }},
    {"millrace_accepted_tokens_total", "Drafted tokens that were accepted and saved a step", kCounter,
     [](const EngineAccount& e) { return number(e.stats.accepted_tokens); }},
    {"millrace_draft_offers_total", "Drafts that could have run, one per stream and step", kCounter,
     [](const EngineAccount& e) { return number(e.stats.drafts); }},
    {"millrace_draft_seconds_total", "Seconds spent on making drafts", kCounter,
     [](const EngineAccount& e) { return e.stats.draft_seconds; }},
    {"millrace_draft_length", "Tokens of a draft that are verified, a recent mean", kGauge,
     [](const EngineAccount& e) { return e.stats.draft_length; }},
    {"millrace_draft_acceptance", "Estimated share of first drafted tokens that are kept", kGauge,
     [](const EngineAccount& e) { return e.stats.draft_acceptance; }},
    {"millrace_draft_trial_steps_total",
     "With --draft-length auto: steps that verified a draft that was not expected to pay, to measure it", kCounter,
     [](const EngineAccount& e) { return number(e.stats.draft_decisions.trials); }},
    {"millrace_draft_declined_steps_total",
     "With --draft-length auto: steps that verified none of their drafts, which were not expected to pay", kCounter,
     [](const EngineAccount& e) { return number(e.stats.draft_decisions.declined); }},
    {"millrace_draft_expected_gain",
     "With --draft-length auto: expected speed of a step with the best number of drafted tokens, as a multiple of one "
     "without; drafts are verified above 1.05",
     kGauge, [](const EngineAccount& e) { return e.stats.draft_decisions.gain(); }},
    {"millrace_draft_expected_step_time",
     "With --draft-length auto: expected duration of that step, as a multiple of one without drafts", kGauge,
     [](const EngineAccount& e) { return e.stats.draft_decisions.time; }},
    {"millrace_evicted_tokens_total", "Tokens whose keys and values were dropped by their streams' evictors", kCounter,
     [](const EngineAccount& e) { return number(e.stats.evicted_tokens); }},
    {"millrace_attention_rows_total", "With KV format progressive: softmaxes of attention", kCounter,
     [](const EngineAccount& e) { return number(e.stats.attention_rows); }},
    {"millrace_attention_flat_rows_total", "Of those, the flat ones, which read both parts of keys and values",
     kCounter, [](const EngineAccount& e) { return number(e.stats.flat_rows); }},
    {"millrace_prefix_cache_queries_total", "Prefix cache lookups, one per admission", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.queries); }},
    {"millrace_prefix_cache_query_tokens_total", "Prompt tokens looked up in the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.query_tokens); }},
    {"millrace_prefix_cache_hit_tokens_total", "Prompt tokens found in the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.hit_tokens); }},
    {"millrace_prefix_cache_stored_blocks_total", "Blocks stored in the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.stored_blocks); }},
    {"millrace_prefix_cache_erased_blocks_total", "Blocks evicted from the prefix cache", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.erased_blocks); }},
    {"millrace_preemptions_total", "Stream preemptions", kCounter,
     [](const EngineAccount& e) { return number(e.stats.preemptions); }},
    {"millrace_recomputed_tokens_total", "Tokens recomputed after preemptions", kCounter,
     [](const EngineAccount& e) { return number(e.stats.recomputed_tokens); }},
    {"millrace_livelocks_total",
     "Livelocks: streams stopped making progress and were run to completion in order of arrival", kCounter,
     [](const EngineAccount& e) { return number(e.stats.livelocks); }},
    {"millrace_swapped_out_tokens_total", "Tokens swapped out to host memory on preemption", kCounter,
     [](const EngineAccount& e) { return number(e.stats.swapped_out_tokens); }},
    {"millrace_swapped_in_tokens_total", "Tokens swapped in from host memory", kCounter,
     [](const EngineAccount& e) { return number(e.stats.swapped_in_tokens); }},
    {"millrace_weight_bytes_read_total", "Bytes of weights read from the disk during steps", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.bytes_read); }},
    {"millrace_weight_hits_total", "Layers or experts that were in memory when a step needed them", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.hits); }},
    {"millrace_weight_misses_total", "Layers or experts that a step waited for", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.misses); }},
    {"millrace_weight_wait_seconds_total", "Time that steps waited for weights", kCounter,
     [](const EngineAccount& e) { return e.stats.weights.wait_seconds; }},
    {"millrace_weights_prefetched_total", "Layers or experts that were read before a step needed them", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.prefetched); }},
    {"millrace_weights_prefetched_used_total", "Of those, the ones that a step used", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.prefetched_used); }},
    {"millrace_experts_run_total", "Experts that steps ran from a cache of experts", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.experts); }},
    {"millrace_cold_experts_run_total", "Of those, the ones that are packed in a cold format", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.cold_experts); }},
    {"millrace_weight_reads_failed_total", "Reads of weights that failed", kCounter,
     [](const EngineAccount& e) { return number(e.stats.weights.failed); }},
    {"millrace_key_bytes_read_total", "Bytes of keys and values of running streams read from a file", kCounter,
     [](const EngineAccount& e) { return number(e.stats.key_stream.read_bytes); }},
    {"millrace_key_bytes_written_total", "Bytes of keys and values of running streams written to a file", kCounter,
     [](const EngineAccount& e) { return number(e.stats.key_stream.written_bytes); }},
    {"millrace_key_blocks_needed_total", "Blocks of keys that layers needed, with a KV tier disk", kCounter,
     [](const EngineAccount& e) { return number(e.stats.key_stream.layer_blocks); }},
    {"millrace_key_blocks_read_total", "Blocks of keys of layers that were read from a file", kCounter,
     [](const EngineAccount& e) { return number(e.stats.key_stream.layer_blocks_read); }},
    {"millrace_key_wait_seconds_total", "Time that steps waited for keys to be read from a file", kCounter,
     [](const EngineAccount& e) { return e.stats.key_stream.wait_seconds; }},
    {"millrace_key_reads_failed_total", "Blocks of keys that could not be read from a file, or were damaged", kCounter,
     [](const EngineAccount& e) { return number(e.stats.key_stream.failed_blocks); }},
    {"millrace_attention_workers", "Worker processes that hold keys and values", kGauge,
     [](const EngineAccount& e) { return number(e.stats.attention_workers.workers); }},
    {"millrace_attention_worker_starts_total", "Starts of attention workers after one has ended", kCounter,
     [](const EngineAccount& e) { return number(e.stats.attention_workers.starts); }},
    {"millrace_attention_worker_bytes", "Bytes of keys and values in attention workers", kGauge,
     [](const EngineAccount& e) { return number(e.stats.attention_workers.bytes); }},
    {"millrace_attention_worker_sent_bytes_total", "Bytes of keys, values and queries sent to attention workers",
     kCounter, [](const EngineAccount& e) { return number(e.stats.attention_workers.sent_bytes); }},
    {"millrace_attention_worker_received_bytes_total", "Bytes of outputs received from attention workers", kCounter,
     [](const EngineAccount& e) { return number(e.stats.attention_workers.received_bytes); }},
    {"millrace_attention_worker_wait_seconds_total", "Time that mini-batches waited for attention workers", kCounter,
     [](const EngineAccount& e) { return e.stats.attention_workers.wait_seconds; }},
    {"millrace_memory_budget_bytes", "Memory budget of the model and its engines; 0: unlimited", kGauge,
     [](const EngineAccount& e) { return number(e.stats.memory_budget); }},
};

// Metrics of the prefix store, if it is enabled.
constexpr EngineFigure kStoreFigures[] = {
    {"millrace_kv_store_blocks", "Blocks in the prefix store", kGauge,
     [](const EngineAccount& e) { return number(e.stats.store.blocks); }},
    {"millrace_kv_store_capacity_blocks", "Capacity of the prefix store in blocks; 0: not limited here", kGauge,
     [](const EngineAccount& e) { return number(e.stats.store.capacity_blocks); }},
    {"millrace_kv_store_connected", "Whether the prefix store can be reached", kGauge,
     [](const EngineAccount& e) { return number(e.stats.store.connected); }},
    {"millrace_kv_store_looking_up", "Streams that wait for the prefix store to say what it has", kGauge,
     [](const EngineAccount& e) { return number(e.stats.store.looking_up); }},
    {"millrace_kv_store_late_lookups_total", "Lookups in the prefix store without an answer by the deadline", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.late_lookups); }},
    {"millrace_kv_store_late_loads_total", "Loads from the prefix store that were incomplete at the deadline", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.late_loads); }},
    {"millrace_kv_store_unread_slots", "Slots not read yet since startup", kGauge,
     [](const EngineAccount& e) { return number(e.stats.store.unread_slots); }},
    {"millrace_kv_store_query_tokens_total", "Prompt tokens not found in the prefix cache in memory", kCounter,
     [](const EngineAccount& e) { return number(e.stats.prefix.query_tokens - e.stats.prefix.hit_tokens); }},
    {"millrace_kv_store_hit_tokens_total",
     "Prompt tokens that loads from the prefix store made usable; with recurrent layers, also those in memory",
     kCounter, [](const EngineAccount& e) { return number(e.stats.store.hit_tokens); }},
    {"millrace_kv_store_passed_tokens_total", "Prompt tokens in the prefix store that were faster to recompute",
     kCounter, [](const EngineAccount& e) { return number(e.stats.store.passed_tokens); }},
    {"millrace_kv_store_left_out_tokens_total", "Stored tokens left out of their streams' attention", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.left_out_tokens); }},
    {"millrace_kv_store_failed_tokens_total", "Prompt tokens whose load failed, so that they were computed", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.failed_tokens); }},
    {"millrace_kv_store_read_bytes_total", "Bytes read from the prefix store", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.read_bytes); }},
    {"millrace_kv_store_written_bytes_total", "Bytes written to the prefix store", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.written_bytes); }},
    {"millrace_kv_store_dropped_blocks_total",
     "Blocks not stored because too many writes were in progress or a write failed", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.dropped_blocks); }},
    {"millrace_kv_store_corrupt_blocks_total", "Corrupt blocks found", kCounter,
     [](const EngineAccount& e) { return number(e.stats.store.corrupt_blocks); }},
};

struct AgeFigure {
  const char* name;
  const char* help;
  AgeHistogram PrefixCacheStats::*ages;
};

constexpr AgeFigure kAges[] = {
    {"millrace_kv_block_lifetime_seconds", "Time from storing a block in the prefix cache to its eviction",
     &PrefixCacheStats::lifetime},
    {"millrace_kv_block_idle_seconds", "Time from the last use of a block in the prefix cache to its eviction",
     &PrefixCacheStats::idle},
    {"millrace_kv_block_reuse_gap_seconds", "Time between two uses of a block", &PrefixCacheStats::reuse_gap},
};
constexpr size_t kAgeEdges = 26;  // up to 2^25 ms, nine hours

// Of drafts, by the position behind the stream's last token, counted from 0.
void add_positions(MetricFamilies& out, std::span<const EngineAccount> engines) {
  FamilyBuilder drafted("millrace_drafts_reaching_position_total", "Drafts that had a token at this position",
                        kCounter);
  FamilyBuilder accepted("millrace_accepted_tokens_by_position_total",
                         "Drafts whose token at this position was accepted", kCounter);
  bool any = false;
  for (const EngineAccount& e : engines)
    for (size_t i = 0; i < kDraftPositions && e.stats.drafted_at[i] > 0; ++i) {
      const MetricLabels labels = {{"model_name", e.model}, {"position", std::to_string(i)}};
      drafted.add(number(e.stats.drafted_at[i]), labels);
      accepted.add(number(e.stats.accepted_at[i]), labels);
      any = true;
    }
  if (!any) return;
  out.push_back(drafted.take());
  out.push_back(accepted.take());
}

}  // namespace

void add_engine_metrics(MetricFamilies& out, std::span<const EngineAccount> engines) {
  const auto add = [&](const EngineFigure& figure, bool store) {
    FamilyBuilder family(figure.name, figure.help, figure.type);
    bool any = false;
    for (const EngineAccount& e : engines) {
      if (store && !e.stats.store.open) continue;
      family.add(figure.value(e), {{"model_name", e.model}});
      any = true;
    }
    if (any) out.push_back(family.take());
  };
  for (const EngineFigure& figure : kFigures) add(figure, false);
  for (const EngineFigure& figure : kStoreFigures) add(figure, true);
  add_positions(out, engines);
  for (const AgeFigure& figure : kAges) {
    FamilyBuilder family(figure.name, figure.help, MetricType::Histogram);
    for (const EngineAccount& e : engines) {
      const AgeHistogram& ages = e.stats.prefix.*figure.ages;
      const double sum = ages.mean_seconds() * static_cast<double>(ages.count());
      family.add_histogram(ages.buckets(), kAgeEdges,
                           [](size_t i) { return static_cast<double>(uint64_t{1} << i) / 1000; }, sum,
                           {{"model_name", e.model}});
    }
    out.push_back(family.take());
  }
  FamilyBuilder steps("millrace_step_tokens", "Prompt and answer tokens computed per step", MetricType::Histogram);
  FamilyBuilder memory("millrace_memory_bytes", "Memory by account", MetricType::Gauge);
  FamilyBuilder peak("millrace_memory_peak_bytes", "Peak memory by account", MetricType::Gauge);
  FamilyBuilder config("millrace_cache_config_info", "Configuration of the KV cache; always 1", MetricType::Gauge);
  for (const EngineAccount& e : engines) {
    steps.add_histogram(e.stats.step_tokens.buckets, StepTokens::kBuckets - 1,
                        [](size_t i) { return static_cast<double>(uint64_t{1} << i); },
                        number(e.stats.step_tokens.tokens), {{"model_name", e.model}});
    for (const MemoryUse& use : e.stats.memory) {
      memory.add(number(use.bytes), {{"model_name", e.model}, {"account", use.name}});
      peak.add(number(use.peak), {{"model_name", e.model}, {"account", use.name}});
    }
    config.add(1, {{"model_name", e.model},
                   {"block_size", std::to_string(e.options.block_tokens)},
                   {"cache_dtype", e.options.kv_format},
                   {"enable_prefix_caching", e.options.prefix_cache ? "True" : "False"},
                   {"num_gpu_blocks", std::to_string(e.stats.kv_blocks)}});
  }
  for (FamilyBuilder* family : {&steps, &memory, &peak, &config})
    if (auto made = family->take(); !made.metric.empty()) out.push_back(std::move(made));
}

}  // namespace millrace
