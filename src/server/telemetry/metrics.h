// What a dashboard sees: counters and histograms of the requests, and the engines' accounts at the moment of asking.
// Names begin with millrace_; other servers' names for the same things can be printed beside them. Thread-safe.
//
//   metrics.cc           what is counted as requests end          engine_metrics.cc    what engines count by themselves
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

namespace prometheus {
struct MetricFamily;
}

namespace millrace {

struct ConstraintCounts;
struct RequestFacts;

// One engine as /metrics tells of it.
struct EngineAccount {
  std::string model;  // as it is served
  EngineStats stats;
  EngineOptions options;
};

// What was not written for want of room or of a reader.
struct TelemetryCounts {
  int64_t log_lines_dropped = 0;
  int64_t spans_exported = 0, spans_dropped = 0;
};

class Metrics {
 public:
  explicit Metrics(const std::string& model, const std::string& version = "");
  ~Metrics();

  void token_gap(const std::string& model, double seconds);  // between two tokens of an answer, as the engine made them
  void finished(const Answer& answer, const Choice& choice, const RequestTimings& timings);  // one answer
  void answered(const Answer& answer);                                                       // the whole request
  void aborted(const std::string& model);                                                    // its reader left
  void refused(ApiErrorKind kind);
  void replied(const RequestFacts& facts);  // any HTTP request, when its answer has ended

  // Prometheus's text format. `alias`: "", "vllm" or "llamacpp".
  std::string text(std::span<const EngineAccount> engines, const HttpCounts& http, const TelemetryCounts& telemetry,
                   const ConstraintCounts& constraints, const std::string& alias);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

using MetricFamilies = std::vector<prometheus::MetricFamily>;

// engine_metrics.cc
void add_engine_metrics(MetricFamilies& out, std::span<const EngineAccount> engines);
// metric_aliases.cc: further families, from those that are there.
void add_metric_aliases(MetricFamilies& families, const std::string& alias);

const char* error_kind_name(ApiErrorKind kind);
const char* error_class_name(ApiErrorKind kind);  // user, unsupported, resource, internal: millrace/result.h's

}  // namespace millrace
