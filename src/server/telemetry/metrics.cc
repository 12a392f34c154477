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
#include "server/generation/text_workers.h"
#include "server/json.h"
#include "server/telemetry/machine_metrics.h"
#include "server/telemetry/metric_family.h"
#include "server/telemetry/request_facts.h"

namespace millrace {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr size_t kMaxTenants = 256;  // further tenants are counted as "other"
constexpr size_t kMaxLabelBytes = 64;

// vLLM's buckets, with finer ones at the low end.
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

std::string valid_utf8(const std::string& text) { return parse_json(to_text(Json(text))).get<std::string>(); }

// Text from a client or operator as a label value: truncated, valid UTF-8.
std::string label_text(const std::string& text) {
  std::string out = valid_utf8(text.substr(0, kMaxLabelBytes));
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
    case ApiErrorKind::gone: return "gone";
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
    case ApiErrorKind::no_storage: return "no_storage";
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
    case ApiErrorKind::no_storage:
    case ApiErrorKind::time_limit: return "resource";
    case ApiErrorKind::internal: return "internal";
    default: return "user";
  }
}

struct Metrics::State {
  prometheus::Registry registry;
  EnergyMeter energy;

  // Histograms of one model.
  struct PerModel {
    std::string name;
    Histogram *first_token, *gap, *per_token, *whole, *queue, *prefill, *decode, *inference, *prompt_tokens,
        *generated_tokens, *longest, *answers_asked, *most_tokens;
  };
  std::mutex mutex;
  std::map<std::string, PerModel> models;  // `mutex` guards this and `tenants`
  std::set<std::string> tenants;

  prometheus::Family<prometheus::Counter>& answers =
      family(registry, prometheus::BuildCounter(), "millrace_answers_finished_total", "Finished answers by reason");
  prometheus::Family<prometheus::Counter>& refusals = family(
      registry, prometheus::BuildCounter(), "millrace_requests_refused_total", "Rejected requests by kind of error");
  prometheus::Family<prometheus::Counter>& errors = family(
      registry, prometheus::BuildCounter(), "millrace_errors_total", "Failed requests of all APIs by error class");
  prometheus::Family<prometheus::Counter>& replies =
      family(registry, prometheus::BuildCounter(), "millrace_http_requests_total", "Answered HTTP requests");
  prometheus::Family<Histogram>& reply_seconds =
      family(registry, prometheus::BuildHistogram(), "millrace_http_request_duration_seconds",
             "Time from the last byte of a request until the last byte of its answer is ready");
  prometheus::Family<prometheus::Counter>& tenant_requests =
      family(registry, prometheus::BuildCounter(), "millrace_tenant_requests_total", "Generation requests by tenant");
  prometheus::Family<prometheus::Counter>& tenant_prompt =
      family(registry, prometheus::BuildCounter(), "millrace_tenant_prompt_tokens_total", "Prompt tokens by tenant");
  prometheus::Family<prometheus::Counter>& tenant_generated = family(
      registry, prometheus::BuildCounter(), "millrace_tenant_generated_tokens_total", "Generated tokens by tenant");

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
      if (tenants.size() >= kMaxTenants) return "other";
      tenants.insert(label);
    }
    return label;
  }
};

Metrics::State::PerModel Metrics::State::make_model(const std::string& m) {
  for (const char* reason : {"stop", "length", "time_limit", "abort", "error"}) answers_of(m, reason);
  return {
      .name = m,
      .first_token = make(m, "millrace_time_to_first_token_seconds", "Time from submission to the first token",
                          first_token_buckets()),
      .gap = make(m, "millrace_inter_token_latency_seconds", "Time between two tokens of an answer", token_buckets()),
      .per_token = make(m, "millrace_time_per_output_token_seconds",
                        "Mean time per token of an answer after its first token", token_buckets()),
      .whole = make(m, "millrace_request_seconds", "Time from the request until the last byte of its answer is ready",
                    request_buckets()),
      .queue = make(m, "millrace_request_queue_seconds", "Time in the queue", request_buckets()),
      .prefill =
          make(m, "millrace_request_prefill_seconds", "Time from admission to the first token", request_buckets()),
      .decode = make(m, "millrace_request_decode_seconds", "Time from the first to the last token", request_buckets()),
      .inference =
          make(m, "millrace_request_inference_seconds", "Time from admission to the last token", request_buckets()),
      .prompt_tokens = make(m, "millrace_request_prompt_tokens", "Prompt tokens per request", count_buckets()),
      .generated_tokens = make(m, "millrace_request_generated_tokens", "Generated tokens per answer", count_buckets()),
      .longest = make(m, "millrace_request_longest_answer_tokens", "Generated tokens of a request's longest answer",
                      count_buckets()),
      .answers_asked = make(m, "millrace_request_answers", "Requested answers per request", {1, 2, 5, 10, 20}),
      .most_tokens =
          make(m, "millrace_request_max_tokens", "Requested token limit per answer, if any", count_buckets())};
}

Metrics::Metrics(const std::string& model, const std::string& version) : state_(std::make_unique<State>()) {
  state_->of(model);
  for (const char* name : {"user", "corrupt", "unsupported", "resource", "cancelled", "internal"})
    state_->errors.Add({{"class", name}});
  family(state_->registry, prometheus::BuildGauge(), "millrace_build_info", "Version of this build; always 1")
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
  m.answers_asked->Observe(static_cast<double>(answer.params.request.n));
  if (answer.params.request.max_tokens >= 0)
    m.most_tokens->Observe(static_cast<double>(answer.params.request.max_tokens));
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
  value("millrace_constraints_waiting", "Constraints (schemas, grammars, regexes) waiting to be compiled",
        MetricType::Gauge, static_cast<double>(counts.waiting));
  value("millrace_constraints_compiling", "Constraints being compiled", MetricType::Gauge,
        static_cast<double>(counts.compiling));
  total("millrace_constraints_compiled_total", "Compiled constraints", counts.compiled);
  total("millrace_constraints_refused_total", "Constraints rejected by the compiler", counts.refused);
  total("millrace_constraints_cancelled_total", "Compilations cancelled because all clients had disconnected",
        counts.cancelled);
  total("millrace_constraints_long_total",
        "Compilations that exceeded their first time slice and continued at idle priority", counts.long_ones);
  total("millrace_constraints_turned_away_total", "Requests rejected because too many constraints were waiting",
        counts.rejected);
  total("millrace_constraints_known_total", "Requests whose constraint was already compiled", counts.known);
  total("millrace_constraints_shared_total", "Requests that shared the compilation of another request", counts.shared);
  value("millrace_constraints_compile_seconds_total", "CPU time spent on compiling constraints", MetricType::Counter,
        counts.seconds);
}

}  // namespace

std::string Metrics::text(std::span<const EngineAccount> engines, const HttpCounts& http,
                          const TelemetryCounts& telemetry, const ConstraintCounts& constraints,
                          const TextCounts& texts, const std::vector<std::string>& aliases) {
  MetricFamilies families;
  for (auto& family : state_->registry.Collect())
    if (!family.metric.empty()) families.push_back(std::move(family));
  add_engine_metrics(families, engines);
  const auto value = [&](const char* name, const char* help, prometheus::MetricType type, int64_t count) {
    families.push_back(FamilyBuilder(name, help, type).add(static_cast<double>(count)).take());
  };
  value("millrace_connections", "Open connections", prometheus::MetricType::Gauge, http.connections);
  value("millrace_connections_answering", "Open connections with a request in progress", prometheus::MetricType::Gauge,
        http.answering);
  value("millrace_slow_readers_cut_total", "Connections closed because the client did not read its answer",
        prometheus::MetricType::Counter, http.slow_readers_cut);
  value("millrace_log_lines_dropped_total", "Log lines dropped because the log was too slow",
        prometheus::MetricType::Counter, telemetry.log_lines_dropped);
  value("millrace_requests_not_recorded_total",
        "Requests left out of the recording: their prompts are rows of the embedding table, or the file cannot be "
        "written",
        prometheus::MetricType::Counter, telemetry.requests_not_recorded);
  value("millrace_spans_exported_total", "Spans accepted by the trace collector", prometheus::MetricType::Counter,
        telemetry.spans_exported);
  value("millrace_spans_dropped_total", "Spans rejected by the trace collector, or dropped because it was too slow",
        prometheus::MetricType::Counter, telemetry.spans_dropped);
  add_constraint_metrics(families, constraints);
  value("millrace_texts_waiting", "Requests whose texts wait to be rendered and tokenized",
        prometheus::MetricType::Gauge, texts.waiting);
  value("millrace_texts_reading", "Threads that render and tokenize texts of requests", prometheus::MetricType::Gauge,
        texts.running);
  value("millrace_texts_turned_away_total", "Requests rejected because too many texts were waiting",
        prometheus::MetricType::Counter, texts.rejected);
  int64_t loaded = 0;
  for (const EngineAccount& engine : engines) loaded += engine.adapters;
  if (const AdapterActivity::Lists lists = adapters_.lists(); loaded > 0)
    families.push_back(FamilyBuilder("millrace_lora_requests_info",
                                     "LoRA adapters in use, with the time of the last change as the value",
                                     prometheus::MetricType::Gauge)
                           .add(lists.changed, {{"max_lora", std::to_string(loaded)},
                                                {"waiting_lora_adapters", valid_utf8(lists.waiting)},
                                                {"running_lora_adapters", valid_utf8(lists.running)}})
                           .take());
  add_machine_metrics(families);
  FamilyBuilder energy("millrace_energy_joules_total", "Energy used by the processor since startup, by all processes",
                       prometheus::MetricType::Counter);
  const auto domains = state_->energy.read();
  for (const EnergyMeter::Domain& domain : domains) energy.add(domain.joules, {{"domain", label_text(domain.name)}});
  if (!domains.empty()) families.push_back(energy.take());
  add_metric_aliases(families, aliases);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace millrace
