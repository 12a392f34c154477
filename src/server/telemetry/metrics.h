// Prometheus metrics: counters and histograms of requests, and the engines' statistics at the time of the scrape. Names
// begin with millrace_; they can be exported under other servers' names in addition. Thread-safe.
//
//   metrics.cc           per-request counters and histograms      engine_metrics.cc    the engines' own counters
//   metric_aliases.cc    other servers' names                     machine_metrics.cc   the process and its energy
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/engine.h"
#include "server/api/api_error.h"
#include "server/generation/answer.h"
#include "server/http/http.h"
#include "server/telemetry/adapter_activity.h"

namespace prometheus {
struct MetricFamily;
}

namespace millrace {

struct ConstraintCounts;
struct RequestFacts;
struct TextCounts;

// One engine's input to /metrics.
struct EngineAccount {
  std::string model;  // served name
  EngineStats stats;
  EngineOptions options;
  int64_t adapters = 0;  // loaded LoRA adapters
};

// Log lines and spans that were written or dropped.
struct TelemetryCounts {
  int64_t log_lines_dropped = 0;
  int64_t requests_not_recorded = 0;  // their prompts are rows of the embedding table, or the file cannot be written
  int64_t spans_exported = 0, spans_dropped = 0;
};

class Metrics {
 public:
  explicit Metrics(const std::string& model, const std::string& version = "");
  ~Metrics();

  void token_gap(const std::string& model, double seconds);  // between two tokens of an answer in the engine
  void finished(const Answer& answer, const Choice& choice, const RequestTimings& timings);  // one answer
  void answered(const Answer& answer);                                                       // the whole request
  void aborted(const std::string& model);                                                    // the client disconnected
  void refused(ApiErrorKind kind);
  void replied(const RequestFacts& facts);  // any HTTP request, when its answer is complete

  AdapterActivity& adapters() { return adapters_; }

  // Prometheus's text format. `aliases`: of "vllm" and "llamacpp".
  std::string text(std::span<const EngineAccount> engines, const HttpCounts& http, const TelemetryCounts& telemetry,
                   const ConstraintCounts& constraints, const TextCounts& texts,
                   const std::vector<std::string>& aliases);

 private:
  struct State;
  std::unique_ptr<State> state_;
  AdapterActivity adapters_;
};

using MetricFamilies = std::vector<prometheus::MetricFamily>;

// engine_metrics.cc
void add_engine_metrics(MetricFamilies& out, std::span<const EngineAccount> engines);
// metric_aliases.cc: appends the aliases of existing families.
void add_metric_aliases(MetricFamilies& families, const std::vector<std::string>& aliases);

const char* error_kind_name(ApiErrorKind kind);
const char* error_class_name(ApiErrorKind kind);  // an ErrorKind name: user, unsupported, resource, internal

}  // namespace millrace
