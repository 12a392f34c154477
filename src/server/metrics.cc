#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>

namespace millrace {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Families = std::vector<prometheus::MetricFamily>;

Buckets first_token_buckets() { return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}; }
Buckets token_buckets() { return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}; }
Buckets request_buckets() { return {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}; }
Buckets count_buckets() { return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}; }

struct Alias {
  const char* ours;
  const char* vllm;
};

constexpr Alias kAliases[] = {
    {"millrace_requests_running", "vllm:num_requests_running"},
    {"millrace_requests_waiting", "vllm:num_requests_waiting"},
    {"millrace_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"millrace_preemptions_total", "vllm:num_preemptions_total"},
    {"millrace_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"millrace_generated_tokens_total", "vllm:generation_tokens_total"},
    {"millrace_prefix_cache_query_tokens_total", "vllm:prefix_cache_queries_total"},
    {"millrace_prefix_cache_hit_tokens_total", "vllm:prefix_cache_hits_total"},
    {"millrace_answers_finished_total", "vllm:request_success_total"},
    {"millrace_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"millrace_inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"millrace_time_per_output_token_seconds", "vllm:request_time_per_output_token_seconds"},
    {"millrace_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"millrace_request_queue_seconds", "vllm:request_queue_time_seconds"},
    {"millrace_request_prefill_seconds", "vllm:request_prefill_time_seconds"},
    {"millrace_request_decode_seconds", "vllm:request_decode_time_seconds"},
    {"millrace_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"millrace_request_generated_tokens", "vllm:request_generation_tokens"},
    {"millrace_request_answers", "vllm:request_params_n"},
    {"millrace_request_max_tokens", "vllm:request_params_max_tokens"},
};

const char* kind_name(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::bad_request: return "bad_request";
    case ApiErrorKind::too_long: return "too_long";
    case ApiErrorKind::unauthorized: return "unauthorized";
    case ApiErrorKind::forbidden: return "forbidden";
    case ApiErrorKind::not_found: return "not_found";
    case ApiErrorKind::no_model: return "no_model";
    case ApiErrorKind::bad_method: return "bad_method";
    case ApiErrorKind::too_slow: return "too_slow";
    case ApiErrorKind::too_large: return "too_large";
    case ApiErrorKind::head_too_large: return "head_too_large";
    case ApiErrorKind::unsupported: return "unsupported";
    case ApiErrorKind::overloaded: return "overloaded";
    case ApiErrorKind::draining: return "draining";
    case ApiErrorKind::time_limit: return "time_limit";
    case ApiErrorKind::internal: return "internal";
  }
  return "";
}

void add_value(Families& out, const char* name, const char* help, prometheus::MetricType type, double value) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  family.metric.emplace_back();
  if (type == prometheus::MetricType::Counter) family.metric.back().counter.value = value;
  if (type == prometheus::MetricType::Gauge) family.metric.back().gauge.value = value;
  out.push_back(std::move(family));
}

void add_engine(Families& out, const EngineStats& e, const HttpCounts& http) {
  const auto gauge = [&](const char* name, const char* help, double value) { add_value(out, name, help, prometheus::MetricType::Gauge, value); };
  const auto counter = [&](const char* name, const char* help, int64_t value) { add_value(out, name, help, prometheus::MetricType::Counter, static_cast<double>(value)); };
  const auto of_blocks = [&](int64_t blocks) { return e.kv_blocks > 0 ? static_cast<double>(blocks) / static_cast<double>(e.kv_blocks) : 0; };
  gauge("millrace_requests_running", "Streams that run", static_cast<double>(e.running));
  gauge("millrace_requests_waiting", "Streams in the queue", static_cast<double>(e.waiting));
  gauge("millrace_kv_cache_usage_ratio", "Blocks of the KV cache that are held, by streams or the prefix cache", of_blocks(e.kv_blocks - e.kv_blocks_free));
  gauge("millrace_prefix_cache_ratio", "Blocks of the KV cache that the prefix cache holds", of_blocks(e.kv_blocks_cached));
  gauge("millrace_kv_cache_bytes", "Memory of the KV cache", static_cast<double>(e.kv_bytes));
  counter("millrace_steps_total", "Steps of the engine", e.steps);
  counter("millrace_prompt_tokens_total", "Prompt tokens, computed or taken from the prefix cache", e.prompt_tokens + e.cached_tokens);
  counter("millrace_generated_tokens_total", "Generated tokens", e.generated_tokens);
  counter("millrace_prefix_cache_query_tokens_total", "Prompt tokens looked up in the prefix cache", e.prompt_tokens + e.cached_tokens);
  counter("millrace_prefix_cache_hit_tokens_total", "Prompt tokens found there", e.cached_tokens);
  counter("millrace_preemptions_total", "Times a stream had to give way", e.preemptions);
  counter("millrace_recomputed_tokens_total", "Tokens computed again after that", e.recomputed_tokens);
  gauge("millrace_connections", "Open connections", static_cast<double>(http.connections));
  counter("millrace_slow_readers_cut_total", "Connections cut because their reader took nothing", http.slow_readers_cut);
}

// But for those of the whole process.
void label_model(Families& families, const std::string& name) {
  for (prometheus::MetricFamily& family : families) {
    if (family.name == "millrace_connections" || family.name == "millrace_slow_readers_cut_total") continue;
    for (auto& metric : family.metric) metric.label.push_back({"model_name", name});
  }
}

// A family of the same name and labels is there once.
void join(Families& all, Families more) {
  for (prometheus::MetricFamily& family : more) {
    const auto there = std::ranges::find(all, family.name, &prometheus::MetricFamily::name);
    if (there == all.end()) {
      all.push_back(std::move(family));
    } else if (!family.metric[0].label.empty()) {
      there->metric.push_back(std::move(family.metric[0]));
    }
  }
}

}  // namespace

struct Metrics::State {
  std::string model;
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& answers =
      prometheus::BuildCounter().Name("millrace_answers_finished_total").Help("Answers by how they ended").Register(registry);
  prometheus::Family<prometheus::Counter>& refusals =
      prometheus::BuildCounter().Name("millrace_requests_refused_total").Help("Requests that got an error, by its kind").Register(registry);

  Histogram& make(const char* name, const char* help, Buckets buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, std::move(buckets));
  }
  Histogram& first_token = make("millrace_time_to_first_token_seconds", "From submission to the first token", first_token_buckets());
  Histogram& gap = make("millrace_inter_token_latency_seconds", "Between two tokens of an answer", token_buckets());
  Histogram& per_token = make("millrace_time_per_output_token_seconds", "Mean over an answer after its first token", token_buckets());
  Histogram& whole = make("millrace_request_seconds", "From the request to its last byte being ready", request_buckets());
  Histogram& queue = make("millrace_request_queue_seconds", "In the queue", request_buckets());
  Histogram& prefill = make("millrace_request_prefill_seconds", "From the queue to the first token", request_buckets());
  Histogram& decode = make("millrace_request_decode_seconds", "From the first token to the last", request_buckets());
  Histogram& prompt_tokens = make("millrace_request_prompt_tokens", "Prompt tokens of a request", count_buckets());
  Histogram& generated_tokens = make("millrace_request_generated_tokens", "Generated tokens of an answer", count_buckets());
  Histogram& answers_asked = make("millrace_request_answers", "Answers asked for", {1, 2, 5, 10, 20});
  Histogram& most_tokens = make("millrace_request_max_tokens", "Tokens allowed to an answer, where a limit was given", count_buckets());
};

Metrics::Metrics(std::string model) : state_(std::make_unique<State>()) {
  state_->model = std::move(model);
  for (const char* reason : {"stop", "length", "time_limit", "abort", "error"}) state_->answers.Add({{"finished_reason", reason}});
}
Metrics::~Metrics() = default;

void Metrics::token_gap(double seconds) { state_->gap.Observe(seconds); }

void Metrics::finished(const Answer& answer, const Choice& choice, const RequestTimings& t) {
  state_->answers.Add({{"finished_reason", finish_reason_name(choice.finish)}}).Increment();
  if (t.first_token_seconds > 0) state_->first_token.Observe(t.first_token_seconds);
  if (t.generated_tokens > 1) state_->per_token.Observe(t.decode_seconds / static_cast<double>(t.generated_tokens - 1));
  state_->queue.Observe(t.queue_seconds);
  state_->prefill.Observe(t.prefill_seconds);
  state_->decode.Observe(t.decode_seconds);
  state_->generated_tokens.Observe(static_cast<double>(t.generated_tokens));
}

void Metrics::answered(const Answer& answer) {
  state_->whole.Observe(answer.total_seconds);
  state_->prompt_tokens.Observe(static_cast<double>(answer.prompt_tokens));
  state_->answers_asked.Observe(static_cast<double>(answer.ask.request.n));
  if (answer.ask.request.max_tokens >= 0) state_->most_tokens.Observe(static_cast<double>(answer.ask.request.max_tokens));
}

void Metrics::aborted() { state_->answers.Add({{"finished_reason", "abort"}}).Increment(); }

void Metrics::refused(ApiErrorKind kind) {
  state_->refusals.Add({{"kind", kind_name(kind)}}).Increment();
  if (kind == ApiErrorKind::internal) state_->answers.Add({{"finished_reason", "error"}}).Increment();
}

std::string Metrics::text(const std::vector<OfModel>& models, const HttpCounts& http, const std::string& alias) {
  Families families = state_->registry.Collect();
  if (models.empty()) add_engine(families, {}, http);
  for (const OfModel& one : models) {
    Families its;
    add_engine(its, one.engine, http);
    if (models.size() > 1) label_model(its, one.name);
    join(families, std::move(its));
  }
  const size_t own = alias == "vllm" ? families.size() : 0;
  for (size_t i = 0; i < own; ++i) {
    for (const Alias& name : kAliases) {
      if (families[i].name != name.ours) continue;
      prometheus::MetricFamily other = families[i];
      other.name = name.vllm;
      for (auto& metric : other.metric) {
        if (std::ranges::find(metric.label, "model_name", &prometheus::ClientMetric::Label::name) == metric.label.end()) metric.label.push_back({"model_name", state_->model});
        metric.label.push_back({"engine", "0"});
      }
      families.push_back(std::move(other));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace millrace
