// Exports metrics under the names of other servers too, so that their dashboards work with this server. Only names with
// a counterpart here are exported: nothing for vLLM's multimodal cache and host offload.
#include <algorithm>

#include "server/telemetry/metric_family.h"
#include "server/telemetry/metrics.h"

namespace millrace {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

struct Alias {
  const char* theirs;
  const char* ours;
};

constexpr Alias kVllm[] = {
    {"vllm:num_requests_running", "millrace_requests_running"},
    {"vllm:num_requests_waiting", "millrace_requests_waiting"},
    {"vllm:kv_cache_usage_perc", "millrace_kv_cache_usage_ratio"},
    {"vllm:gpu_cache_usage_perc", "millrace_kv_cache_usage_ratio"},  // old name
    {"vllm:cache_config_info", "millrace_cache_config_info"},
    {"vllm:num_preemptions_total", "millrace_preemptions_total"},
    {"vllm:spec_decode_num_drafts_total", "millrace_drafts_total"},
    {"vllm:spec_decode_num_draft_tokens_total", "millrace_drafted_tokens_total"},
    {"vllm:spec_decode_num_accepted_tokens_total", "millrace_accepted_tokens_total"},
    {"vllm:spec_decode_num_accepted_tokens_per_pos_total", "millrace_accepted_tokens_by_position_total"},
    {"vllm:prompt_tokens_total", "millrace_prompt_tokens_total"},
    {"vllm:generation_tokens_total", "millrace_generated_tokens_total"},
    {"vllm:prefix_cache_queries_total", "millrace_prefix_cache_query_tokens_total"},
    {"vllm:prefix_cache_hits_total", "millrace_prefix_cache_hit_tokens_total"},
    {"vllm:external_prefix_cache_queries_total", "millrace_kv_store_query_tokens_total"},
    {"vllm:external_prefix_cache_hits_total", "millrace_kv_store_hit_tokens_total"},
    {"vllm:request_success_total", "millrace_answers_finished_total"},
    {"vllm:time_to_first_token_seconds", "millrace_time_to_first_token_seconds"},
    {"vllm:inter_token_latency_seconds", "millrace_inter_token_latency_seconds"},
    {"vllm:time_per_output_token_seconds", "millrace_inter_token_latency_seconds"},  // old name
    {"vllm:request_time_per_output_token_seconds", "millrace_time_per_output_token_seconds"},
    {"vllm:e2e_request_latency_seconds", "millrace_request_seconds"},
    {"vllm:request_queue_time_seconds", "millrace_request_queue_seconds"},
    {"vllm:request_prefill_time_seconds", "millrace_request_prefill_seconds"},
    {"vllm:request_decode_time_seconds", "millrace_request_decode_seconds"},
    {"vllm:request_inference_time_seconds", "millrace_request_inference_seconds"},
    {"vllm:request_prompt_tokens", "millrace_request_prompt_tokens"},
    {"vllm:request_generation_tokens", "millrace_request_generated_tokens"},
    {"vllm:request_max_num_generation_tokens", "millrace_request_longest_answer_tokens"},
    {"vllm:request_params_n", "millrace_request_answers"},
    {"vllm:request_params_max_tokens", "millrace_request_max_tokens"},
    {"vllm:iteration_tokens_total", "millrace_step_tokens"},  // a histogram despite its name
    {"vllm:kv_block_lifetime_seconds", "millrace_kv_block_lifetime_seconds"},
    {"vllm:kv_block_idle_before_evict_seconds", "millrace_kv_block_idle_seconds"},
    {"vllm:kv_block_reuse_gap_seconds", "millrace_kv_block_reuse_gap_seconds"},
    {"vllm:lora_requests_info", "millrace_lora_requests_info"},
    {"http_requests_total", "millrace_http_requests_total"},
    {"http_request_duration_seconds", "millrace_http_request_duration_seconds"},
};

const MetricFamily* find(const MetricFamilies& families, std::string_view name) {
  const auto found = std::ranges::find(families, name, &MetricFamily::name);
  return found == families.end() ? nullptr : &*found;
}

// vLLM's reasons are stop, length, abort and error: an answer that reached its time limit counts as aborted.
void fold_reasons(MetricFamily& family) {
  for (auto late = family.metric.begin(); late != family.metric.end();) {
    const auto reason = std::ranges::find(late->label, "finished_reason", &prometheus::ClientMetric::Label::name);
    if (reason == late->label.end() || reason->value != "time_limit") {
      ++late;
      continue;
    }
    auto wanted = late->label;
    wanted[static_cast<size_t>(reason - late->label.begin())].value = "abort";
    const double count = late->counter.value;
    late = family.metric.erase(late);
    for (auto& metric : family.metric)
      if (metric.label == wanted) metric.counter.value += count;
  }
}

void add_vllm(MetricFamilies& families) {
  MetricFamilies more;
  for (const Alias& alias : kVllm) {
    const MetricFamily* ours = find(families, alias.ours);
    if (!ours) continue;
    MetricFamily theirs = *ours;
    theirs.name = alias.theirs;
    const bool of_engine = theirs.name.starts_with("vllm:");
    for (auto& metric : theirs.metric)
      if (of_engine) metric.label.push_back({"engine", "0"});
    if (theirs.name == "vllm:request_success_total") fold_reasons(theirs);
    more.push_back(std::move(theirs));
  }
  std::ranges::move(more, std::back_inserter(families));
}

enum class Part { value, sum };

struct LlamaAlias {
  const char* theirs;
  MetricType type;
  const char* ours;
  Part part = Part::value;        // sum: of a histogram
  const char* divisor = nullptr;  // divide by this histogram's sum
};

constexpr LlamaAlias kLlama[] = {
    {"llamacpp:prompt_tokens_total", MetricType::Counter, "millrace_prompt_tokens_computed_total"},
    {"llamacpp:prompt_tokens_cached_total", MetricType::Counter, "millrace_prompt_tokens_cached_total"},
    {"llamacpp:prompt_seconds_total", MetricType::Counter, "millrace_request_prefill_seconds", Part::sum},
    {"llamacpp:tokens_predicted_total", MetricType::Counter, "millrace_generated_tokens_total"},
    {"llamacpp:tokens_predicted_seconds_total", MetricType::Counter, "millrace_request_decode_seconds", Part::sum},
    {"llamacpp:n_decode_total", MetricType::Counter, "millrace_steps_total"},
    {"llamacpp:prompt_tokens_seconds", MetricType::Gauge, "millrace_prompt_tokens_computed_total", Part::value,
     "millrace_request_prefill_seconds"},
    {"llamacpp:predicted_tokens_seconds", MetricType::Gauge, "millrace_generated_tokens_total", Part::value,
     "millrace_request_decode_seconds"},
    {"llamacpp:requests_processing", MetricType::Gauge, "millrace_requests_running"},
    {"llamacpp:requests_deferred", MetricType::Gauge, "millrace_requests_waiting"},
};

// Sums over all models: llama-server has no labels.
double total(const MetricFamily& family, Part part) {
  double sum = 0;
  for (const auto& metric : family.metric) {
    if (part == Part::sum)
      sum += metric.histogram.sample_sum;
    else
      sum += family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value;
  }
  return sum;
}

void add_llamacpp(MetricFamilies& families) {
  MetricFamilies more;
  for (const LlamaAlias& alias : kLlama) {
    const MetricFamily* ours = find(families, alias.ours);
    if (!ours) continue;
    double value = total(*ours, alias.part);
    if (alias.divisor) {
      const MetricFamily* divisor = find(families, alias.divisor);
      const double seconds = divisor ? total(*divisor, Part::sum) : 0;
      value = seconds > 0 ? value / seconds : 0;
    }
    more.push_back(FamilyBuilder(alias.theirs, ours->help, alias.type).add(value).take());
  }
  std::ranges::move(more, std::back_inserter(families));
}

}  // namespace

void add_metric_aliases(MetricFamilies& families, const std::vector<std::string>& aliases) {
  const auto wanted = [&](const char* name) { return std::ranges::find(aliases, name) != aliases.end(); };
  if (wanted("vllm")) add_vllm(families);
  if (wanted("llamacpp")) add_llamacpp(families);
}

}  // namespace millrace
