#include "server/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <mutex>
#include <set>

#include "server/generation/constraint_workers.h"
#include "server/json.h"
#include "server/telemetry/machine_metrics.h"
#include "server/telemetry/metric_family.h"
#include "server/telemetry/request_facts.h"

namespace millrace {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr size_t kMostTenants = 256;  // further ones are counted together
constexpr size_t kMostLabelBytes = 64;

// vLLM's, with finer ones below.
Buckets first_token_buckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
}
Buckets token_buckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
          0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
}
Buckets request_buckets() {
  return {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,
          15,   20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
}
Buckets count_buckets() { return {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000}; }

// What a client or an operator chose, as a label: short, UTF-8.
std::string label_text(const std::string& text) {
  std::string out = parse_json(to_text(Json(text.substr(0, kMostLabelBytes)))).get<std::string>();
  return out.empty() ? "none" : out;
}

template <typename Builder>
auto& family(prometheus::Registry& registry, Builder builder, const char* name, const char* help) {
  return builder.Name(name).Help(help).Register(registry);
}

const char* known_method(const std::string& method) {
  for (const char* known : {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"})
    if (method == known) return known;
  return "other";
}

}  // namespace

const char* error_kind_name(ApiErrorKind kind) {
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
    case ApiErrorKind::unsupported:
    case ApiErrorKind::not_built: return "unsupported";
    case ApiErrorKind::overloaded: return "overloaded";
    case ApiErrorKind::rate_limited: return "rate_limited";
    case ApiErrorKind::no_quota: return "no_quota";
    case ApiErrorKind::draining: return "draining";
    case ApiErrorKind::busy: return "busy";
    case ApiErrorKind::time_limit: return "time_limit";
    case ApiErrorKind::internal: return "internal";
  }
  return "other";
}

const char* error_class_name(ApiErrorKind kind) {
  switch (kind) {
    case ApiErrorKind::unsupported:
    case ApiErrorKind::not_built: return "unsupported";
    case ApiErrorKind::overloaded:
    case ApiErrorKind::draining:
    case ApiErrorKind::busy:
    case ApiErrorKind::time_limit: return "resource";
    case ApiErrorKind::internal: return "internal";
    default: return "user";
  }
}

struct Metrics::State {
  prometheus::Registry registry;
  EnergyMeter energy;

  // Of one model.
  struct PerModel {
    std::string name;
    Histogram *first_token, *gap, *per_token, *whole, *queue, *prefill, *decode, *inference, *prompt_tokens,
        *generated_tokens, *longest, *answers_asked, *most_tokens;
  };
  std::mutex mutex;
  std::map<std::string, PerModel> models;  // guarded by `mutex`, as are:
  std::set<std::string> tenants;

  prometheus::Family<prometheus::Counter>& answers =
      family(registry, prometheus::BuildCounter(), "millrace_answers_finished_total", "Answers by how they ended");
  prometheus::Family<prometheus::Counter>& refusals =
      family(registry, prometheus::BuildCounter(), "millrace_requests_refused_total",
             "Requests that got an error, by its kind");
  prometheus::Family<prometheus::Counter>& errors =
      family(registry, prometheus::BuildCounter(), "millrace_errors_total",
             "Requests that failed, by class, whatever API they came by");
  prometheus::Family<prometheus::Counter>& replies =
      family(registry, prometheus::BuildCounter(), "millrace_http_requests_total", "HTTP requests that were answered");
  prometheus::Family<Histogram>& reply_seconds =
      family(registry, prometheus::BuildHistogram(), "millrace_http_request_duration_seconds",
             "From a request's last byte to its answer's last byte being ready");
  prometheus::Family<prometheus::Counter>& tenant_requests = family(
      registry, prometheus::BuildCounter(), "millrace_tenant_requests_total", "Requests for text, by whose they are");
  prometheus::Family<prometheus::Counter>& tenant_prompt =
      family(registry, prometheus::BuildCounter(), "millrace_tenant_prompt_tokens_total", "Their prompt tokens");
  prometheus::Family<prometheus::Counter>& tenant_generated = family(
      registry, prometheus::BuildCounter(), "millrace_tenant_generated_tokens_total", "Tokens generated for them");

  Histogram* make(const std::string& model, const char* name, const char* help, Buckets buckets) {
    return &family(registry, prometheus::BuildHistogram(), name, help).Add({{"model_name", model}}, std::move(buckets));
  }
  PerModel make_model(const std::string& m);
  PerModel& of(const std::string& model) {
    std::lock_guard lock(mutex);
    auto found = models.find(model);
    if (found == models.end()) found = models.emplace(model, make_model(label_text(model))).first;
    return found->second;
  }
  prometheus::Counter& answers_of(const std::string& model, const char* reason) {
    return answers.Add({{"model_name", model}, {"finished_reason", reason}});
  }
  std::string tenant_label(const std::string& tenant) {
    const std::string label = label_text(tenant);
    std::lock_guard lock(mutex);
    if (!tenants.contains(label)) {
      if (tenants.size() >= kMostTenants) return "other";
      tenants.insert(label);
    }
    return label;
  }
};

Metrics::State::PerModel Metrics::State::make_model(const std::string& m) {
  for (const char* reason : {"stop", "length", "time_limit", "abort", "error"}) answers_of(m, reason);
  return {
      .name = m,
      .first_token =
          make(m, "millrace_time_to_first_token_seconds", "From submission to the first token", first_token_buckets()),
      .gap = make(m, "millrace_inter_token_latency_seconds", "Between two tokens of an answer", token_buckets()),
      .per_token = make(m, "millrace_time_per_output_token_seconds", "Mean over an answer after its first token",
                        token_buckets()),
      .whole = make(m, "millrace_request_seconds", "From the request to its last byte being ready", request_buckets()),
      .queue = make(m, "millrace_request_queue_seconds", "In the queue", request_buckets()),
      .prefill = make(m, "millrace_request_prefill_seconds", "From the queue to the first token", request_buckets()),
      .decode = make(m, "millrace_request_decode_seconds", "From the first token to the last", request_buckets()),
      .inference = make(m, "millrace_request_inference_seconds", "From the queue to the last token", request_buckets()),
      .prompt_tokens = make(m, "millrace_request_prompt_tokens", "Prompt tokens of a request", count_buckets()),
      .generated_tokens =
          make(m, "millrace_request_generated_tokens", "Generated tokens of an answer", count_buckets()),
      .longest = make(m, "millrace_request_longest_answer_tokens", "Generated tokens of a request's longest answer",
                      count_buckets()),
      .answers_asked = make(m, "millrace_request_answers", "Answers asked for", {1, 2, 5, 10, 20}),
      .most_tokens = make(m, "millrace_request_max_tokens", "Tokens allowed to an answer, where a limit was given",
                          count_buckets())};
}

Metrics::Metrics(const std::string& model, const std::string& version) : state_(std::make_unique<State>()) {
  state_->of(model);
  for (const char* name : {"user", "corrupt", "unsupported", "resource", "cancelled", "internal"})
    state_->errors.Add({{"class", name}});
  family(state_->registry, prometheus::BuildGauge(), "millrace_build_info", "Which build this is; always 1")
      .Add({{"version", version.empty() ? "unknown" : label_text(version)}})
      .Set(1);
}
Metrics::~Metrics() = default;

void Metrics::token_gap(const std::string& model, double seconds) { state_->of(model).gap->Observe(seconds); }

void Metrics::finished(const Answer& answer, const Choice& choice, const RequestTimings& t) {
  State::PerModel& m = state_->of(answer.model_name);
  state_->answers_of(m.name, finish_reason_name(choice.finish)).Increment();
  if (t.first_token_seconds > 0) m.first_token->Observe(t.first_token_seconds);
  if (t.generated_tokens > 1) m.per_token->Observe(t.decode_seconds / static_cast<double>(t.generated_tokens - 1));
  m.queue->Observe(t.queue_seconds);
  m.prefill->Observe(t.prefill_seconds);
  m.decode->Observe(t.decode_seconds);
  m.inference->Observe(t.prefill_seconds + t.decode_seconds);
  m.generated_tokens->Observe(static_cast<double>(t.generated_tokens));
}

void Metrics::answered(const Answer& answer) {
  State::PerModel& m = state_->of(answer.model_name);
  m.whole->Observe(answer.total_seconds);
  m.prompt_tokens->Observe(static_cast<double>(answer.prompt_tokens));
  m.longest->Observe(static_cast<double>(answer.longest_tokens));
  m.answers_asked->Observe(static_cast<double>(answer.ask.request.n));
  if (answer.ask.request.max_tokens >= 0) m.most_tokens->Observe(static_cast<double>(answer.ask.request.max_tokens));
}

void Metrics::aborted(const std::string& model) {
  state_->answers_of(state_->of(model).name, "abort").Increment();
  state_->errors.Add({{"class", "cancelled"}}).Increment();
}

void Metrics::refused(ApiErrorKind kind) {
  state_->refusals.Add({{"kind", error_kind_name(kind)}}).Increment();
  state_->errors.Add({{"class", error_class_name(kind)}}).Increment();
}

void Metrics::replied(const RequestFacts& facts) {
  const std::string handler = facts.handler.empty() ? "none" : facts.handler, method = known_method(facts.method);
  state_->replies.Add({{"handler", handler}, {"method", method}, {"status", std::to_string(facts.status)}}).Increment();
  state_->reply_seconds.Add({{"handler", handler}, {"method", method}}, request_buckets()).Observe(facts.seconds);
  if (!facts.generates) return;
  if (facts.error == "internal") state_->answers_of(state_->of(facts.model).name, "error").Increment();
  const std::string tenant = state_->tenant_label(facts.tenant);
  state_->tenant_requests.Add({{"tenant", tenant}}).Increment();
  state_->tenant_prompt.Add({{"tenant", tenant}}).Increment(static_cast<double>(facts.prompt_tokens));
  state_->tenant_generated.Add({{"tenant", tenant}}).Increment(static_cast<double>(facts.generated_tokens));
}

namespace {

void add_constraint_metrics(MetricFamilies& families, const ConstraintCounts& counts) {
  using prometheus::MetricType;
  const auto value = [&](const char* name, const char* help, MetricType type, double count) {
    families.push_back(FamilyBuilder(name, help, type).add(count).take());
  };
  const auto total = [&](const char* name, const char* help, int64_t count) {
    value(name, help, MetricType::Counter, static_cast<double>(count));
  };
  value("millrace_constraints_waiting", "Schemas, grammars and regexes that wait to be compiled", MetricType::Gauge,
        static_cast<double>(counts.waiting));
  value("millrace_constraints_compiling", "... that are being compiled", MetricType::Gauge,
        static_cast<double>(counts.compiling));
  total("millrace_constraints_compiled_total", "... that were compiled", counts.compiled);
  total("millrace_constraints_refused_total", "... that were refused as they were compiled", counts.refused);
  total("millrace_constraints_cancelled_total", "... that nobody waited for any more", counts.cancelled);
  total("millrace_constraints_long_total",
        "... that took longer than a first try, and went on when the processor was idle", counts.long_ones);
  total("millrace_constraints_turned_away_total", "Requests refused because too many waited", counts.turned_away);
  total("millrace_constraints_known_total", "Requests that found what they asked for compiled", counts.known);
  total("millrace_constraints_shared_total", "Requests that waited for what another one had asked for", counts.shared);
  value("millrace_constraints_compile_seconds_total", "Processor time that compiling took", MetricType::Counter,
        counts.seconds);
}

}  // namespace

std::string Metrics::text(std::span<const EngineAccount> engines, const HttpCounts& http,
                          const TelemetryCounts& telemetry, const ConstraintCounts& constraints,
                          const std::string& alias) {
  MetricFamilies families;
  for (auto& family : state_->registry.Collect())
    if (!family.metric.empty()) families.push_back(std::move(family));
  add_engine_metrics(families, engines);
  const auto value = [&](const char* name, const char* help, prometheus::MetricType type, int64_t count) {
    families.push_back(FamilyBuilder(name, help, type).add(static_cast<double>(count)).take());
  };
  value("millrace_connections", "Open connections", prometheus::MetricType::Gauge, http.connections);
  value("millrace_connections_answering", "Open connections with a request under way", prometheus::MetricType::Gauge,
        http.answering);
  value("millrace_slow_readers_cut_total", "Connections cut because their reader took nothing",
        prometheus::MetricType::Counter, http.slow_readers_cut);
  value("millrace_log_lines_dropped_total", "Lines that the log could not take as fast as they came",
        prometheus::MetricType::Counter, telemetry.log_lines_dropped);
  value("millrace_spans_exported_total", "Spans that the trace collector took", prometheus::MetricType::Counter,
        telemetry.spans_exported);
  value("millrace_spans_dropped_total", "Spans that it did not take, or that came faster than it took them",
        prometheus::MetricType::Counter, telemetry.spans_dropped);
  add_constraint_metrics(families, constraints);
  add_machine_metrics(families);
  FamilyBuilder energy("millrace_energy_joules_total",
                       "Energy that the processor counted since the start, whoever used it",
                       prometheus::MetricType::Counter);
  const auto domains = state_->energy.read();
  for (const EnergyMeter::Domain& domain : domains) energy.add(domain.joules, {{"domain", label_text(domain.name)}});
  if (!domains.empty()) families.push_back(energy.take());
  add_metric_aliases(families, alias);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace millrace
